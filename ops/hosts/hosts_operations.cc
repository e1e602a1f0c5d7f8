#include "ops/hosts/hosts_operations.h"

#include <new>
#include <optional>

#include "ops/hosts/allreduce_hosts.h"
#include "ops/hosts/reduce_scatter_hosts.h"
#include "ops/hosts/staged.h"

namespace kolo::internal {

struct HostsOperations::Members {
  Members(WindowOperations& of_host, const HostMap& the_map, int rank)
      : map(the_map),
        local_order(ReductionOrder::single_host(the_map.local_size(the_map.host(rank)))),
        across_order(ReductionOrder::single_host(the_map.hosts())),
        local(of_host),
        view{.map = &map, .local = &local_order, .across = &across_order, .lane = &of_host.lane()} {
    blocks.reserve(static_cast<std::size_t>(map.size()));
    send_blocks.reserve(static_cast<std::size_t>(map.size()));
  }

  // Starts an operation; on a lane that was given up, or without memory, it fails as an operation.
  template <typename Started, typename Start>
  Operation& start(Started& operation, const Start& with) {
    if (view.lane->given_up()) {
      operation.fail(
          aborted("an operation before this one was given up, and its shared memory "
                  "with it"));
      return operation;
    }
    try {
      with();
    } catch (const std::bad_alloc&) {
      view.lane->give_up();
      operation.fail(resource_error("no memory for the staging of a collective; free some"));
    }
    return operation;
  }

  const HostMap map;
  const ReductionOrder local_order;
  const ReductionOrder across_order;
  WindowOperations& local;
  const HostsView view;
  // Of all ranks, on one host.
  std::vector<Block> blocks;
  std::vector<Block> send_blocks;
  AllreduceHosts allreduce;
  HostsBroadcast broadcast;
  ReduceScatterHosts reduce_scatter;
  HostsAllgather allgather;
  HostsAlltoall alltoall;
  HostsBarrier barrier;
};

HostsOperations::HostsOperations(WindowOperations& local, const HostMap& map, int rank)
    : members_(std::make_unique<Members>(local, map, rank)) {}
HostsOperations::~HostsOperations() = default;

Operation& HostsOperations::start_allreduce(const Communicator& communicator,
                                            std::span<const Piece> pieces,
                                            const Reduction& reduction) {
  Members& m = *members_;
  if (m.map.hosts() == 1) return m.local.start_allreduce(m.local_order, pieces, reduction);
  std::optional<std::size_t> place;
  if (pieces.size() == 1) {
    place = m.local.place(pieces[0].input, pieces[0].count * element_bytes(reduction.dtype));
  }
  return m.start(m.allreduce,
                 [&] { m.allreduce.start(communicator, m.view, pieces, reduction, place); });
}

Operation& HostsOperations::start_reduce_scatter(const Communicator& communicator,
                                                 const Piece& piece,
                                                 std::span<const std::size_t> counts,
                                                 const Reduction& reduction) {
  Members& m = *members_;
  if (m.map.hosts() == 1) {
    return m.local.start_reduce_scatter(m.local_order, piece, counts, reduction);
  }
  const auto place = m.local.place(piece.input, piece.count * element_bytes(reduction.dtype));
  return m.start(m.reduce_scatter, [&] {
    m.reduce_scatter.start(communicator, m.view, piece, counts, reduction, place);
  });
}

Operation& HostsOperations::start_allgather(const Communicator& communicator, const void* input,
                                            void* output, std::span<const std::size_t> bytes) {
  Members& m = *members_;
  if (m.map.hosts() == 1) {
    lay_out(bytes, m.blocks);
    return m.local.start_allgather(input, output, m.blocks);
  }
  return m.start(m.allgather,
                 [&] { m.allgather.start(communicator, m.view, m.local, input, output, bytes); });
}

Operation& HostsOperations::start_alltoall(const Communicator& communicator, const void* input,
                                           void* output, std::span<const std::size_t> send_bytes,
                                           std::span<const std::size_t> receive_bytes) {
  Members& m = *members_;
  if (m.map.hosts() == 1) {
    lay_out(send_bytes, m.send_blocks);
    lay_out(receive_bytes, m.blocks);
    return m.local.start_alltoall(input, output, m.send_blocks, m.blocks);
  }
  return m.start(m.alltoall, [&] {
    m.alltoall.start(communicator, m.view, m.local, input, output, send_bytes, receive_bytes);
  });
}

Operation& HostsOperations::start_broadcast(const Communicator& communicator, int root,
                                            const void* input, void* output, std::size_t bytes) {
  Members& m = *members_;
  if (m.map.hosts() == 1) return m.local.start_broadcast(root, input, output, bytes);
  return m.start(m.broadcast, [&] {
    m.broadcast.start(communicator, m.view, m.local, root, input, output, bytes);
  });
}

Operation& HostsOperations::start_barrier(const Communicator& communicator) {
  Members& m = *members_;
  if (m.map.hosts() == 1) return m.local.start_barrier();
  return m.start(m.barrier, [&] { m.barrier.start(communicator, m.view, m.local); });
}

}  // namespace kolo::internal
