// Do all ranks mean the same? Pure checks of the variants of one complete unit.
#pragma once

#include <vector>

#include "base/status.h"
#include "coordinator/readiness.h"

namespace kolo::internal {

// OK when the variants are valid and differ in nothing but what is each rank's own affair. Else
// MISMATCH: the first attribute that differs (group membership, operation, dtype, op, counts,
// shape, root, scales), every value with its ranks, and the cure.
[[nodiscard]] Status check_agreement(const PendingUnit& pending);

// Whether the unit can run while `absent` ranks have joined: INVALID_ARGUMENT where an absent rank
// has nothing neutral to give.
[[nodiscard]] Status check_absent(const Unit& unit, const std::vector<int>& absent);

}  // namespace kolo::internal
