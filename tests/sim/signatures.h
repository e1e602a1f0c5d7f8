// Signatures: random units, as the ranks of a process set submit them. Made from a seed.
#pragma once

#include <string>
#include <vector>

#include "coordinator/topology.h"
#include "coordinator/unit.h"
#include "tests/sim/random.h"

namespace kolo::internal {

// Of any kind but those about process sets; `ranks` of its set. Numbers that are each rank's own
// affair are still to come: personalise().
[[nodiscard]] Unit random_signature(const UnitKey& key, const std::vector<int>& ranks, Rng& rng);

// The unit as each of those that submit it does: `submitters` of `set_size` ranks. Those of
// `tensor` get numbers of their own; if all ranks submit it, some expect what the others send.
void personalise(std::vector<Unit>& units, std::size_t tensor, std::size_t set_size, Rng& rng);

}  // namespace kolo::internal
