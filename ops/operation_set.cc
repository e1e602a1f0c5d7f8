#include "ops/operation_set.h"

#include <new>

#include "ops/allgather.h"
#include "ops/allreduce_direct.h"
#include "ops/allreduce_oneshot.h"
#include "ops/allreduce_ring.h"
#include "ops/barrier.h"
#include "ops/broadcast.h"

namespace kolo::internal {

namespace {

// Starts an operation; without the memory for it, it fails as an operation.
template <typename Started, typename... Arguments>
Operation& start(Started& operation, const Arguments&... arguments) {
  try {
    operation.start(arguments...);
  } catch (const std::bad_alloc&) {
    operation.fail(
        resource_error("no memory for the staging of a collective; free some, or lower the fusion "
                       "threshold"));
  }
  return operation;
}

}  // namespace

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
                                         std::span<const Piece> pieces,
                                         const Reduction& reduction) {
  // Alone there is nobody to go round; the one-shot applies scales and copies.
  if (communicator.size == 1) algorithm = Algorithm::kOneshot;
  switch (algorithm) {
    case Algorithm::kOneshot: break;
    case Algorithm::kDirect: return start(members_->direct, communicator, pieces, reduction);
    case Algorithm::kRing: return start(members_->ring, communicator, pieces, reduction);
  }
  return start(members_->oneshot, communicator, pieces, reduction);
}

Operation& OperationSet::start_allgather(const Communicator& communicator, const void* input,
                                         void* output, std::size_t input_bytes) {
  return start(members_->allgather, communicator, input, output, input_bytes);
}

Operation& OperationSet::start_broadcast(const Communicator& communicator, int root,
                                         const void* input, void* output, std::size_t bytes) {
  return start(members_->broadcast, communicator, root, input, output, bytes);
}

Operation& OperationSet::start_barrier(const Communicator& communicator) {
  return start(members_->barrier, communicator);
}

}  // namespace kolo::internal
