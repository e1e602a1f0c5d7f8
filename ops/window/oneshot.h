// One-shot all-reduce over a window: everybody reads everything. In a reduce-scatter, everything
// of its block.
//
//   1. pack this rank's contribution into its staging: packing publishes
//   2. when all have, reduce them in the canonical order, straight into the outputs
//
// Cost: 1 step; a rank copies its contribution and reads n of them (of its block). Up to
// kOneshotBytes.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/window/window_operation.h"

namespace kolo::internal {

class WindowOneshot final : public WindowOperation {
 public:
  void start(WindowLane& lane, const ReductionOrder& order, std::span<const Piece> pieces,
             const Reduction& reduction);
  // Reduces only `block` of the piece; the piece's output has room for that alone.
  void start(WindowLane& lane, const ReductionOrder& order, const Piece& piece,
             const Reduction& reduction, Range block);

 private:
  WindowLane::Places enter() override;
  bool step() override;

  TensorGroup group_;
  std::optional<Range> block_;
  std::vector<const std::byte*> inputs_;
};

}  // namespace kolo::internal
