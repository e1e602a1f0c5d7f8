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
#include "ops/communicator.h"
#include "ops/fused_broadcast.h"
#include "ops/host_map.h"
#include "ops/hosts/hosts_operations.h"
#include "ops/operation.h"
#include "ops/operation_set.h"
#include "ops/select.h"
#include "ops/window/window_operations.h"

namespace kolo::internal {

class Collectives {
 public:
  // `communicator.channels` and its order outlive this.
  explicit Collectives(const Communicator& communicator) : communicator_(communicator) {}
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;
  virtual ~Collectives() = default;

  [[nodiscard]] int rank() const { return communicator_.rank; }
  [[nodiscard]] int size() const { return communicator_.size; }

  // `sequence` is the operation's number, the same on all ranks; spans are copied. An operation
  // that does not move anything, or has one rank, is valid too.

  // Every op but kAdasum, for which see ops/adasum.h.
  virtual Operation& start_allreduce(std::uint32_t sequence, std::span<const Piece> pieces,
                                     const Reduction& reduction) = 0;
  // `piece` is the whole input, [sum of counts] elements; its output is this rank's block of
  // counts[rank] elements, which may be that block of the input. The bits are an all-reduce's.
  virtual Operation& start_reduce_scatter(std::uint32_t sequence, const Piece& piece,
                                          std::span<const std::size_t> counts,
                                          const Reduction& reduction) = 0;
  // Rank r gives bytes[r], and its block of the output lies behind those of the ranks before it.
  // The input may be this rank's block of the output.
  virtual Operation& start_allgather(std::uint32_t sequence, const void* input, void* output,
                                     std::span<const std::size_t> bytes) = 0;
  // Block s of the input goes to rank s, block r of the output comes from rank r; blocks lie close
  // together in rank order. Input and output do not overlap.
  virtual Operation& start_alltoall(std::uint32_t sequence, const void* input, void* output,
                                    std::span<const std::size_t> send_bytes,
                                    std::span<const std::size_t> receive_bytes) = 0;
  // One piece moves as it is; several are packed at the root, and unpacked (ops/fused_broadcast.h).
  Operation& start_broadcast(std::uint32_t sequence, int root,
                             std::span<const BroadcastPiece> pieces);
  virtual Operation& start_broadcast(std::uint32_t sequence, int root,
                                     const BroadcastPiece& piece) = 0;
  virtual Operation& start_barrier(std::uint32_t sequence) = 0;

  // Bytes that this rank has copied into and out of shared memory.
  [[nodiscard]] virtual std::uint64_t bytes_copied() const { return 0; }

 protected:
  // The communicator of the operation of that number.
  const Communicator& numbered(std::uint32_t sequence) {
    communicator_.sequence = sequence;
    return communicator_;
  }

 private:
  Communicator communicator_;
  FusedBroadcast fused_broadcast_;
};

// Over channels between all ranks.
class ChannelCollectives final : public Collectives {
 public:
  ChannelCollectives(const Communicator& communicator, AlgorithmChoice choice)
      : Collectives(communicator), choice_(choice) {}

  Operation& start_allreduce(std::uint32_t sequence, std::span<const Piece> pieces,
                             const Reduction& reduction) override;
  Operation& start_reduce_scatter(std::uint32_t sequence, const Piece& piece,
                                  std::span<const std::size_t> counts,
                                  const Reduction& reduction) override;
  Operation& start_allgather(std::uint32_t sequence, const void* input, void* output,
                             std::span<const std::size_t> bytes) override;
  Operation& start_alltoall(std::uint32_t sequence, const void* input, void* output,
                            std::span<const std::size_t> send_bytes,
                            std::span<const std::size_t> receive_bytes) override;
  using Collectives::start_broadcast;
  Operation& start_broadcast(std::uint32_t sequence, int root,
                             const BroadcastPiece& piece) override;
  Operation& start_barrier(std::uint32_t sequence) override;

 private:
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
      : Collectives(communicator),
        local_(window, lane_offset, arena),
        operations_(local_, map, communicator.rank) {}

  Operation& start_allreduce(std::uint32_t sequence, std::span<const Piece> pieces,
                             const Reduction& reduction) override;
  Operation& start_reduce_scatter(std::uint32_t sequence, const Piece& piece,
                                  std::span<const std::size_t> counts,
                                  const Reduction& reduction) override;
  Operation& start_allgather(std::uint32_t sequence, const void* input, void* output,
                             std::span<const std::size_t> bytes) override;
  Operation& start_alltoall(std::uint32_t sequence, const void* input, void* output,
                            std::span<const std::size_t> send_bytes,
                            std::span<const std::size_t> receive_bytes) override;
  using Collectives::start_broadcast;
  Operation& start_broadcast(std::uint32_t sequence, int root,
                             const BroadcastPiece& piece) override;
  Operation& start_barrier(std::uint32_t sequence) override;
  [[nodiscard]] std::uint64_t bytes_copied() const override {
    return local_.counters().bytes_packed + local_.counters().bytes_unpacked;
  }

 private:
  WindowOperations local_;
  HostsOperations operations_;
};

}  // namespace kolo::internal
