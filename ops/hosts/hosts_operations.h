// HostsOperations: one reusable object of every collective over several hosts whose ranks share a
// window each; a stream needs one. The counterpart of OperationSet and WindowOperations; where all
// ranks are on one host it hands everything to the latter.
//
// Ranks here are those of the communicator. A rank that is alone on its host has a window of size
// 1. At most one operation is in progress at a time, and all ranks start the same ones in the same
// order. After a cancel(), or an operation that failed, neither channels nor lane serve any more.
// Threads: one at a time. Owns the staging of partials: bounded.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/types.h"
#include "ops/communicator.h"
#include "ops/host_map.h"
#include "ops/operation.h"
#include "ops/window/window_operations.h"

namespace kolo::internal {

class HostsOperations {
 public:
  // `local`: over the window of this rank's host, in which its place is map.local(rank).
  // It outlives this, and may be used by itself between operations if all ranks of the host do so.
  HostsOperations(WindowOperations& local, const HostMap& map, int rank);
  ~HostsOperations();

  // communicator.order is not needed: the order is the map's. `pieces` is copied.
  Operation& start_allreduce(const Communicator& communicator, std::span<const Piece> pieces,
                             const Reduction& reduction);
  // These as in Collectives; spans are copied.
  Operation& start_reduce_scatter(const Communicator& communicator, const Piece& piece,
                                  std::span<const std::size_t> counts, const Reduction& reduction);
  Operation& start_allgather(const Communicator& communicator, const void* input, void* output,
                             std::span<const std::size_t> bytes);
  Operation& start_alltoall(const Communicator& communicator, const void* input, void* output,
                            std::span<const std::size_t> send_bytes,
                            std::span<const std::size_t> receive_bytes);
  Operation& start_broadcast(const Communicator& communicator, int root, const void* input,
                             void* output, std::size_t bytes);
  Operation& start_barrier(const Communicator& communicator);

 private:
  struct Members;
  std::unique_ptr<Members> members_;
};

}  // namespace kolo::internal
