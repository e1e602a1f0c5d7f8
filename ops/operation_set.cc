#include "ops/operation_set.h"

#include "ops/allgather.h"
#include "ops/allreduce_direct.h"
#include "ops/allreduce_oneshot.h"
#include "ops/allreduce_ring.h"
#include "ops/barrier.h"
#include "ops/broadcast.h"

namespace kolo::internal {

struct OperationSet::Members {
  AllreduceOneshot oneshot;
  AllreduceDirect direct;
  AllreduceRing ring;
  Allgather allgather;
  Broadcast broadcast;
  Barrier barrier;
};

OperationSet::OperationSet() : members_(std::make_unique<Members>()) {}
OperationSet::~OperationSet() = default;

Operation& OperationSet::start_allreduce(Algorithm algorithm, const Communicator& communicator,
                                         std::span<const Piece> pieces, DataType dtype,
                                         ReduceOp op) {
  // Alone there is nobody to go round; the one-shot applies scales and copies.
  if (communicator.size == 1) algorithm = Algorithm::kOneshot;
  switch (algorithm) {
    case Algorithm::kOneshot: break;
    case Algorithm::kDirect:
      members_->direct.start(communicator, pieces, dtype, op);
      return members_->direct;
    case Algorithm::kRing:
      members_->ring.start(communicator, pieces, dtype, op);
      return members_->ring;
  }
  members_->oneshot.start(communicator, pieces, dtype, op);
  return members_->oneshot;
}

Operation& OperationSet::start_allgather(const Communicator& communicator, const void* input,
                                         void* output, std::size_t input_bytes) {
  members_->allgather.start(communicator, input, output, input_bytes);
  return members_->allgather;
}

Operation& OperationSet::start_broadcast(const Communicator& communicator, int root,
                                         const void* input, void* output, std::size_t bytes) {
  members_->broadcast.start(communicator, root, input, output, bytes);
  return members_->broadcast;
}

Operation& OperationSet::start_barrier(const Communicator& communicator) {
  members_->barrier.start(communicator);
  return members_->barrier;
}

}  // namespace kolo::internal
