// Collectives whose contributions are all at hand already: small tensors whose bytes came along
// with the word that they are ready. No channel, no step: a call and it is done.
//
// The all-reduce combines in the canonical order, so its bits are those of the other algorithms.
// Threads: one at a time; allocates nothing once warm.
#pragma once

#include <span>

#include "base/types.h"
#include "ops/operation.h"
#include "ops/reduction_order.h"
#include "ops/tensor_group.h"

namespace kolo::internal {

class GatheredCollectives {
 public:
  // contributions[rank]: piece.count elements each; piece.input is not read.
  void allreduce(const ReductionOrder& order, Piece piece, const Reduction& reduction,
                 std::span<const std::byte* const> contributions);
  // output: all contributions, of `bytes` each, one after the other.
  void allgather(void* output, std::size_t bytes, std::span<const std::byte* const> contributions);
  void broadcast(void* output, std::size_t bytes, const std::byte* contribution);

 private:
  TensorGroup group_;
};

}  // namespace kolo::internal
