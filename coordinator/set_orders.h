// What the ordered stream says about process sets. Pure functions.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "coordinator/frame.h"
#include "coordinator/topology.h"

namespace kolo::internal {

// The process set that ends with this step; 0: none.
[[nodiscard]] std::uint32_t ended_set(const Item& item);

// Adds the sets that the step makes. INTERNAL for a step about sets that no sequencer can have
// sent.
Status learn_sets(const Item& item, Topology& topology);

}  // namespace kolo::internal
