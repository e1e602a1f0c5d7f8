// What the ranks of a unit say each for itself: elements that they give in an open all-gather, or
// send in an all-to-all with counts. The order brings the numbers of all. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "coordinator/readiness.h"
#include "coordinator/unit.h"

namespace kolo::internal {

// Whether so many elements, all together, can be in memory.
[[nodiscard]] bool can_be_held(std::span<const std::uint64_t> counts, DataType dtype);

// Of a unit that the ranks agree about otherwise; `ranks`: of its process set. Absent ranks give 0.
// Errors: MISMATCH where a rank expects another count than it is sent, naming both; and
// INVALID_ARGUMENT for counts of another number of ranks, or more than can be held.
// Cost: the square of the number of ranks, for an all-to-all.
[[nodiscard]] Result<OrderCounts> gather_counts(const PendingUnit& pending,
                                                const std::vector<int>& ranks);

// Whether an order's counts are for this unit in a process set of `size` ranks.
[[nodiscard]] bool counts_fit(const OrderCounts& counts, const Unit& unit, std::size_t size);
// Whether they say of the rank at `place` what it has submitted; they fit.
[[nodiscard]] bool counts_tell(const OrderCounts& counts, const Unit& submitted, std::size_t place);

}  // namespace kolo::internal
