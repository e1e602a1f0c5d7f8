// Executor: runs ordered operations over the streams of channels. Operations start in the order in
// which they are given, the n-th on stream n modulo the number of streams, and may end in any.
//
// advance() never blocks. Threads: the driver only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "coordinator/member.h"
#include "core/completions.h"
#include "core/request_state.h"
#include "ops/gathered.h"
#include "ops/operation_set.h"
#include "ops/reduction_order.h"

namespace kolo::internal {

// One fused operation: tensors of one kind, dtype and op, or a single tensor.
struct OrderedOperation {
  struct Tensor {
    RequestPtr request;
    std::size_t index = 0;  // of the tensor in the request's unit
  };
  std::vector<Tensor> tensors;
  std::uint32_t process_set = 0;
  std::uint64_t run = 0;  // the process set's run that it belongs to
};

class Executor {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    AlgorithmChoice algorithm = AlgorithmChoice::kAuto;
  };

  // `channels[stream][peer]`, this rank's own entry null; they outlive the executor.
  Executor(const Options& options, std::vector<std::vector<Channel*>> channels,
           ReductionOrder order, Completions& completions, const Clock& clock);

  void set_trace(Trace* trace) { trace_ = trace; }
  // The bytes of a single small tensor that may travel with the word of its readiness: this rank's
  // contribution. Nothing for larger tensors, for groups, and where the ring was asked for: a
  // tensor must not change its order of additions once it is known.
  [[nodiscard]] std::optional<std::string> payload_of(const RequestState& request) const;
  void enqueue(OrderedOperation operation);
  // A single tensor of which every rank's bytes are here, in rank order: ends the request.
  void complete(const RequestPtr& request, const std::vector<std::string>& payloads);
  // True if anything moved. An error is an operation's: it has ended with it, and its channels are
  // broken. That a peer has taken leave is no such error: it ends the operation that waits for the
  // peer and what comes later on its stream, and the peer's word of how far it went follows.
  Result<bool> advance();
  // Ends the operations of the set's runs beyond `through`.
  void end_beyond(std::uint32_t process_set, std::uint64_t through, const Status& status);
  void end_all(const Status& status);

  [[nodiscard]] bool idle() const { return running_ == 0 && waiting_.empty(); }
  [[nodiscard]] std::uint64_t started() const { return started_; }

 private:
  struct Stream {
    std::vector<Channel*> channels;
    OperationSet operations;
    Operation* running = nullptr;
    Status given_up;  // why its channels serve no operation any more
    OrderedOperation ordered;
  };

  void start_waiting();
  void start(Stream& stream, OrderedOperation ordered);
  Operation& start_collective(Stream& stream, const OrderedOperation& ordered);
  Operation& start_allreduce(Stream& stream, const Communicator& communicator,
                             const OrderedOperation& ordered);
  void finish(Stream& stream, const Status& status);
  void end(const OrderedOperation& ordered, const Status& status);

  Options options_;
  ReductionOrder order_;
  Completions& completions_;
  const Clock& clock_;
  Trace* trace_ = nullptr;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::deque<OrderedOperation> waiting_;
  GatheredCollectives gathered_;
  std::vector<Piece> pieces_;  // scratch
  std::size_t running_ = 0;
  std::uint64_t started_ = 0;
};

}  // namespace kolo::internal
