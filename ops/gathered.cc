#include "ops/gathered.h"

#include <cstring>

#include "ops/mxcsr_guard.h"

namespace kolo::internal {

void GatheredCollectives::allreduce(const ReductionOrder& order, Piece piece,
                                    const Reduction& reduction,
                                    std::span<const std::byte* const> contributions) {
  const MxcsrGuard guard;
  piece.input = piece.output;
  group_.start({&piece, 1}, reduction, order, TensorGroup::Layout::kWhole);
  group_.reduce_to_pieces({0, piece.count}, contributions);
}

void GatheredCollectives::allgather(void* output, std::size_t bytes,
                                    std::span<const std::byte* const> contributions) {
  auto* to = static_cast<std::byte*>(output);
  for (const std::byte* contribution : contributions) {
    broadcast(to, bytes, contribution);
    to += bytes;
  }
}

void GatheredCollectives::broadcast(void* output, std::size_t bytes,
                                    const std::byte* contribution) {
  if (bytes > 0) std::memcpy(output, contribution, bytes);
}

}  // namespace kolo::internal
