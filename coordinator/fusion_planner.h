// The fusion planner: cuts the tensors that are ready together into fused operations.
//
// A pure function, run by the sequencer only: it sends the cuts, and nobody cuts for himself.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/frame.h"

namespace kolo::internal {

struct FusionOptions {
  std::uint64_t threshold_bytes = std::uint64_t{64} << 20;  // of one fused operation; 0: no fusion
  std::uint64_t tensor_bytes = std::uint64_t{256} << 10;    // larger tensors travel alone
};

// Places (counted over the tensors of `units` in order) by fused operation, in the order of their
// first members. Units with payloads stand alone: they move nothing. All-reduces fuse when process
// set, dtype, op and absent ranks are equal, also past tensors in between that do not fit;
// everything else stands alone. Empty when nothing fuses: then every tensor stands alone, in order.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> plan_fusion(
    const std::vector<UnitOrder>& units, const FusionOptions& options);

}  // namespace kolo::internal
