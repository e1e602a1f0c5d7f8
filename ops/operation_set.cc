#include "ops/operation_set.h"

#include <new>

#include "ops/allgather_ring.h"
#include "ops/allreduce_direct.h"
#include "ops/allreduce_oneshot.h"
#include "ops/allreduce_ring.h"
#include "ops/barrier.h"
#include "ops/broadcast.h"
#include "ops/pair_exchange.h"

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
  PairExchange pairs;
  AllgatherRing allgather_ring;
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

Operation& OperationSet::start_reduce_scatter(Algorithm algorithm, const Communicator& communicator,
                                              const Piece& piece,
                                              std::span<const std::size_t> counts,
                                              const Reduction& reduction) {
  if (communicator.size == 1) {
    return start(members_->oneshot, communicator, std::span(&piece, 1), reduction);
  }
  if (algorithm == Algorithm::kRing) {
    return start(members_->ring, communicator, piece, counts, reduction);
  }
  return start(members_->direct, communicator, piece, counts, reduction);
}

Operation& OperationSet::start_allgather(Algorithm algorithm, const Communicator& communicator,
                                         const void* input, void* output,
                                         std::span<const std::size_t> bytes) {
  // Two ranks are a ring either way.
  if (algorithm == Algorithm::kRing && communicator.size > 2) {
    return start(members_->allgather_ring, communicator, input, output, bytes);
  }
  return start(members_->pairs, communicator, input, output, bytes);
}

Operation& OperationSet::start_alltoall(const Communicator& communicator, const void* input,
                                        void* output, std::span<const std::size_t> send_bytes,
                                        std::span<const std::size_t> receive_bytes) {
  return start(members_->pairs, communicator, input, output, send_bytes, receive_bytes);
}

Operation& OperationSet::start_broadcast(const Communicator& communicator, int root,
                                         const void* input, void* output, std::size_t bytes) {
  return start(members_->broadcast, communicator, root, input, output, bytes);
}

Operation& OperationSet::start_barrier(const Communicator& communicator) {
  return start(members_->barrier, communicator);
}

}  // namespace kolo::internal
