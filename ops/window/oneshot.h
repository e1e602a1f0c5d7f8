// One-shot all-reduce over a window: everybody reads everything.
//
//   1. pack this rank's contribution into its staging: packing publishes
//   2. when all have, reduce them in the canonical order, straight into the outputs
//
// Cost: 1 step; a rank copies its contribution and reads n of them. Up to kOneshotBytes.
#pragma once

#include <span>
#include <vector>

#include "ops/window/window_operation.h"

namespace kolo::internal {

class WindowOneshot final : public WindowOperation {
 public:
  void start(WindowLane& lane, const ReductionOrder& order, std::span<const Piece> pieces,
             DataType dtype, ReduceOp op);

 private:
  WindowLane::Places enter() override;
  bool step() override;

  TensorGroup group_;
  std::vector<const std::byte*> inputs_;
};

}  // namespace kolo::internal
