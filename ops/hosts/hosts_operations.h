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
                             DataType dtype, ReduceOp op);
  // As in OperationSet.
  Operation& start_allgather(const Communicator& communicator, const void* input, void* output,
                             std::size_t input_bytes);
  Operation& start_broadcast(const Communicator& communicator, int root, const void* input,
                             void* output, std::size_t bytes);
  Operation& start_barrier(const Communicator& communicator);

 private:
  struct Members;
  std::unique_ptr<Members> members_;
};

}  // namespace kolo::internal
