// A broadcast of several tensors as one: over any road.
//
//   1. the root packs the tensors into the fusion buffer
//   2. one broadcast from buffer to buffer
//   3. everybody unpacks; the root only if some tensor is not in place
//
// Cost: the road's broadcast of the sum of the bytes, and a copy at each end. Staging: that sum.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/composed.h"
#include "ops/reduction_order.h"
#include "ops/tensor_group.h"

namespace kolo::internal {

class FusedBroadcast final : public ComposedOperation {
 public:
  // `pieces` is copied.
  void start(Collectives& collectives, std::uint32_t sequence, int root,
             std::span<const BroadcastPiece> pieces);

 private:
  enum class Stage { kPack, kUnpack };

  void step() override;

  const ReductionOrder alone_ = ReductionOrder::single_host(1);
  std::vector<Piece> pieces_;
  TensorGroup group_;  // of bytes
  Stage stage_ = Stage::kPack;
  int root_ = 0;
  bool in_place_ = false;
};

}  // namespace kolo::internal
