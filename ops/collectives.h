// Collectives: the collectives of one stream over whatever road its ranks have between them. At
// most one operation is in progress at a time; all ranks start the same ones in the same order.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/types.h"
#include "ops/host_map.h"
#include "ops/hosts/hosts_operations.h"
#include "ops/operation.h"
#include "ops/operation_set.h"
#include "ops/select.h"
#include "ops/window/window_operations.h"

namespace kolo::internal {

class Collectives {
 public:
  virtual ~Collectives() = default;

  // `sequence` is the operation's number, the same on all ranks. For the rest see OperationSet.
  virtual Operation& start_allreduce(std::uint32_t sequence, std::span<const Piece> pieces,
                                     DataType dtype, ReduceOp op) = 0;
  virtual Operation& start_allgather(std::uint32_t sequence, const void* input, void* output,
                                     std::size_t input_bytes) = 0;
  virtual Operation& start_broadcast(std::uint32_t sequence, int root, const void* input,
                                     void* output, std::size_t bytes) = 0;
  virtual Operation& start_barrier(std::uint32_t sequence) = 0;

  // Bytes that this rank has copied into and out of shared memory.
  [[nodiscard]] virtual std::uint64_t bytes_copied() const { return 0; }
};

// Over channels between all ranks.
class ChannelCollectives final : public Collectives {
 public:
  // `communicator.channels` point into memory that outlives this, as does its order.
  ChannelCollectives(const Communicator& communicator, AlgorithmChoice choice)
      : communicator_(communicator), choice_(choice) {}

  Operation& start_allreduce(std::uint32_t sequence, std::span<const Piece> pieces, DataType dtype,
                             ReduceOp op) override;
  Operation& start_allgather(std::uint32_t sequence, const void* input, void* output,
                             std::size_t input_bytes) override;
  Operation& start_broadcast(std::uint32_t sequence, int root, const void* input, void* output,
                             std::size_t bytes) override;
  Operation& start_barrier(std::uint32_t sequence) override;

 private:
  const Communicator& numbered(std::uint32_t sequence);

  Communicator communicator_;
  AlgorithmChoice choice_;
  OperationSet operations_;
};

// Over windows inside the hosts, and channels between them; if all ranks are on one host, over its
// window alone.
class HostsCollectives final : public Collectives {
 public:
  // See WindowOperations and HostsOperations. Window, arena, map and channels outlive this.
  HostsCollectives(Window& window, std::size_t lane_offset, const Arena* arena, const HostMap& map,
                   const Communicator& communicator)
      : communicator_(communicator),
        local_(window, lane_offset, arena),
        operations_(local_, map, communicator.rank) {}

  Operation& start_allreduce(std::uint32_t sequence, std::span<const Piece> pieces, DataType dtype,
                             ReduceOp op) override;
  Operation& start_allgather(std::uint32_t sequence, const void* input, void* output,
                             std::size_t input_bytes) override;
  Operation& start_broadcast(std::uint32_t sequence, int root, const void* input, void* output,
                             std::size_t bytes) override;
  Operation& start_barrier(std::uint32_t sequence) override;
  [[nodiscard]] std::uint64_t bytes_copied() const override {
    return local_.counters().bytes_packed + local_.counters().bytes_unpacked;
  }

 private:
  const Communicator& numbered(std::uint32_t sequence);

  Communicator communicator_;
  WindowOperations local_;
  HostsOperations operations_;
};

}  // namespace kolo::internal
