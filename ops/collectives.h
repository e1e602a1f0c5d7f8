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

// Over a window that all ranks share.
class WindowCollectives final : public Collectives {
 public:
  // See WindowOperations; `order` outlives this.
  WindowCollectives(Window& window, std::size_t lane_offset, const Arena* arena,
                    const ReductionOrder& order)
      : order_(order), operations_(window, lane_offset, arena) {}

  Operation& start_allreduce(std::uint32_t, std::span<const Piece> pieces, DataType dtype,
                             ReduceOp op) override {
    return operations_.start_allreduce(order_, pieces, dtype, op);
  }
  Operation& start_allgather(std::uint32_t, const void* input, void* output,
                             std::size_t input_bytes) override {
    return operations_.start_allgather(input, output, input_bytes);
  }
  Operation& start_broadcast(std::uint32_t, int root, const void* input, void* output,
                             std::size_t bytes) override {
    return operations_.start_broadcast(root, input, output, bytes);
  }
  Operation& start_barrier(std::uint32_t) override { return operations_.start_barrier(); }
  [[nodiscard]] std::uint64_t bytes_copied() const override {
    return operations_.counters().bytes_packed + operations_.counters().bytes_unpacked;
  }

 private:
  const ReductionOrder& order_;
  WindowOperations operations_;
};

}  // namespace kolo::internal
