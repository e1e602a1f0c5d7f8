#include "ops/gathered.h"

#include <cstring>

#include "base/check.h"
#include "ops/mxcsr_guard.h"

namespace kolo::internal {

void GatheredCollectives::allreduce(const ReductionOrder& order, Piece piece, DataType dtype,
                                    ReduceOp op, std::span<const std::string> contributions) {
  const MxcsrGuard guard;
  inputs_.clear();
  for (const std::string& contribution : contributions) {
    KOLO_CHECK(contribution.size() == piece.count * element_bytes(dtype));
    inputs_.push_back(reinterpret_cast<const std::byte*>(contribution.data()));
  }
  piece.input = piece.output;
  group_.start({&piece, 1}, dtype, op, order, TensorGroup::Layout::kWhole);
  group_.reduce_to_pieces({0, piece.count}, inputs_);
}

void GatheredCollectives::allgather(void* output, std::size_t bytes,
                                    std::span<const std::string> contributions) {
  auto* to = static_cast<std::byte*>(output);
  for (const std::string& contribution : contributions) {
    broadcast(to, bytes, contribution);
    to += bytes;
  }
}

void GatheredCollectives::broadcast(void* output, std::size_t bytes,
                                    const std::string& contribution) {
  KOLO_CHECK(contribution.size() == bytes);
  if (bytes > 0) std::memcpy(output, contribution.data(), bytes);
}

}  // namespace kolo::internal
