// OperationStarter: from an ordered operation to the collective that does it: what each kind is
// called with. One for each stream, since an operation in progress belongs to its stream.
//
// Threads: one at a time; allocates nothing once warm, but for operations that the header of their
// algorithm says so of.
#pragma once

#include <cstdint>
#include <vector>

#include "core/block_counts.h"
#include "core/request_state.h"
#include "ops/adasum.h"
#include "ops/collectives.h"

namespace kolo::internal {

// One fused operation: tensors of one kind, dtype and op, or a single tensor.
struct OrderedOperation {
  struct Tensor {
    RequestPtr request;
    std::size_t index = 0;  // of the tensor in the request's unit

    [[nodiscard]] const TensorSpec& spec() const { return request->unit->tensors[index]; }
    [[nodiscard]] const TensorBuffers& buffers() const { return request->buffers[index]; }
  };
  std::vector<Tensor> tensors;
  std::uint32_t process_set = 0;
  std::uint64_t run = 0;  // the process set's run that it belongs to
};

class OperationStarter {
 public:
  Operation& start(Collectives& collectives, std::uint32_t sequence,
                   const OrderedOperation& ordered);

 private:
  Operation& start_allreduce(Collectives& collectives, std::uint32_t sequence,
                             const OrderedOperation& ordered);
  Operation& start_broadcast(Collectives& collectives, std::uint32_t sequence,
                             const OrderedOperation& ordered);
  Operation& start_alltoall(Collectives& collectives, std::uint32_t sequence,
                            const OrderedOperation::Tensor& tensor);

  Adasum adasum_;
  std::vector<Piece> pieces_;  // scratch, as all below
  std::vector<BroadcastPiece> broadcasts_;
  std::vector<std::size_t> sizes_;
  std::vector<std::size_t> receive_sizes_;
};

}  // namespace kolo::internal
