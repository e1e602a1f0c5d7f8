// OperationSet: one reusable object of every collective; a stream of channels needs one set, and
// each start_...() returns the operation that it has started.
//
// At most one operation of a set is in progress at a time. Argument errors are not looked for here
// (core/validate does that); a broken assumption is a Bug. When memory runs out in a start, the
// operation's advance() returns RESOURCE.
// Threads: one at a time. Owns all staging, the fusion buffer included: bounded but for the latter,
// which grows to the largest fused group seen.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/types.h"
#include "ops/communicator.h"
#include "ops/operation.h"
#include "ops/select.h"

namespace kolo::internal {

class OperationSet {
 public:
  OperationSet();
  ~OperationSet();

  // Every piece of one dtype and op. One piece is reduced in place in the caller's memory; several
  // are packed into the fusion buffer and unpacked afterwards. `pieces` is copied.
  Operation& start_allreduce(Algorithm algorithm, const Communicator& communicator,
                             std::span<const Piece> pieces, const Reduction& reduction);
  // By the ring if asked for, else directly. The rest is as in Collectives.
  Operation& start_reduce_scatter(Algorithm algorithm, const Communicator& communicator,
                                  const Piece& piece, std::span<const std::size_t> counts,
                                  const Reduction& reduction);
  Operation& start_allgather(Algorithm algorithm, const Communicator& communicator,
                             const void* input, void* output, std::span<const std::size_t> bytes);
  Operation& start_alltoall(const Communicator& communicator, const void* input, void* output,
                            std::span<const std::size_t> send_bytes,
                            std::span<const std::size_t> receive_bytes);
  // input counts on the root only; output everywhere (at the root it may equal input).
  Operation& start_broadcast(const Communicator& communicator, int root, const void* input,
                             void* output, std::size_t bytes);
  Operation& start_barrier(const Communicator& communicator);

 private:
  struct Members;
  std::unique_ptr<Members> members_;
};

}  // namespace kolo::internal
