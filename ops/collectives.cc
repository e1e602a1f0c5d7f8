#include "ops/collectives.h"

#include "base/check.h"

namespace kolo::internal {

Operation& Collectives::start_broadcast(std::uint32_t sequence, int root,
                                        std::span<const BroadcastPiece> pieces) {
  KOLO_CHECK(!pieces.empty());
  if (pieces.size() == 1) return start_broadcast(sequence, root, pieces[0]);
  fused_broadcast_.start(*this, sequence, root, pieces);
  return fused_broadcast_;
}

Operation& ChannelCollectives::start_allreduce(std::uint32_t sequence,
                                               std::span<const Piece> pieces,
                                               const Reduction& reduction) {
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.count * element_bytes(reduction.dtype);
  const Algorithm algorithm = select_allreduce(choice_, bytes, size());
  return operations_.start_allreduce(algorithm, numbered(sequence), pieces, reduction);
}

Operation& ChannelCollectives::start_allgather(std::uint32_t sequence, const void* input,
                                               void* output, std::span<const std::size_t> bytes) {
  return operations_.start_allgather(select_by_rank(choice_), numbered(sequence), input, output,
                                     bytes);
}

Operation& ChannelCollectives::start_reduce_scatter(std::uint32_t sequence, const Piece& piece,
                                                    std::span<const std::size_t> counts,
                                                    const Reduction& reduction) {
  return operations_.start_reduce_scatter(select_by_rank(choice_), numbered(sequence), piece,
                                          counts, reduction);
}

Operation& ChannelCollectives::start_alltoall(std::uint32_t sequence, const void* input,
                                              void* output, std::span<const std::size_t> send_bytes,
                                              std::span<const std::size_t> receive_bytes) {
  return operations_.start_alltoall(numbered(sequence), input, output, send_bytes, receive_bytes);
}

Operation& ChannelCollectives::start_broadcast(std::uint32_t sequence, int root,
                                               const BroadcastPiece& piece) {
  return operations_.start_broadcast(numbered(sequence), root, piece.input, piece.output,
                                     piece.bytes);
}

Operation& ChannelCollectives::start_barrier(std::uint32_t sequence) {
  return operations_.start_barrier(numbered(sequence));
}

Operation& HostsCollectives::start_allreduce(std::uint32_t sequence, std::span<const Piece> pieces,
                                             const Reduction& reduction) {
  return operations_.start_allreduce(numbered(sequence), pieces, reduction);
}

Operation& HostsCollectives::start_reduce_scatter(std::uint32_t sequence, const Piece& piece,
                                                  std::span<const std::size_t> counts,
                                                  const Reduction& reduction) {
  return operations_.start_reduce_scatter(numbered(sequence), piece, counts, reduction);
}

Operation& HostsCollectives::start_allgather(std::uint32_t sequence, const void* input,
                                             void* output, std::span<const std::size_t> bytes) {
  return operations_.start_allgather(numbered(sequence), input, output, bytes);
}

Operation& HostsCollectives::start_alltoall(std::uint32_t sequence, const void* input, void* output,
                                            std::span<const std::size_t> send_bytes,
                                            std::span<const std::size_t> receive_bytes) {
  return operations_.start_alltoall(numbered(sequence), input, output, send_bytes, receive_bytes);
}

Operation& HostsCollectives::start_broadcast(std::uint32_t sequence, int root,
                                             const BroadcastPiece& piece) {
  return operations_.start_broadcast(numbered(sequence), root, piece.input, piece.output,
                                     piece.bytes);
}

Operation& HostsCollectives::start_barrier(std::uint32_t sequence) {
  return operations_.start_barrier(numbered(sequence));
}

}  // namespace kolo::internal
