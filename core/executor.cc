#include "core/executor.h"

#include <utility>

#include "base/check.h"

namespace kolo::internal {

std::optional<std::string> Executor::payload_of(const RequestState& request) const {
  if (request.unit->group || request.unit->numbered) return std::nullopt;
  const TensorSpec& spec = request.unit->tensors.front();
  const std::size_t size = element_bytes(spec.dtype);
  if (spec.count > kPayloadBytesMax / size) return std::nullopt;
  const bool by_ring =
      spec.kind == OpKind::kAllreduce && options_.algorithm == AlgorithmChoice::kRing;
  if (by_ring) return std::nullopt;
  const bool contributes = spec.kind != OpKind::kBroadcast || spec.root == options_.rank;
  if (!contributes || spec.count == 0) return std::string();
  return std::string(static_cast<const char*>(request.buffers.front().input), spec.count * size);
}

Executor::Executor(const Options& options, std::vector<std::vector<Channel*>> channels,
                   ReductionOrder order, Completions& completions, const Clock& clock)
    : options_(options), order_(std::move(order)), completions_(completions), clock_(clock) {
  for (auto& of_stream : channels) {
    streams_.push_back(std::make_unique<Stream>());
    streams_.back()->channels = std::move(of_stream);
  }
  KOLO_CHECK(!streams_.empty());
}

void Executor::enqueue(OrderedOperation operation) { waiting_.push_back(std::move(operation)); }

void Executor::complete(const RequestPtr& request, const std::vector<std::string>& payloads) {
  const TensorSpec& spec = request->unit->tensors.front();
  if (trace_ != nullptr) {
    trace_->record(Trace::Phase::kStart, request->id, request->unit->key.name, clock_.now());
  }
  void* const output = request->buffers.front().output;
  const std::size_t bytes = spec.count * element_bytes(spec.dtype);
  switch (spec.kind) {
    case OpKind::kAllreduce:
      gathered_.allreduce(order_, {nullptr, output, spec.count, spec.prescale, spec.postscale},
                          spec.dtype, spec.op, payloads);
      break;
    case OpKind::kAllgather: gathered_.allgather(output, bytes, payloads); break;
    case OpKind::kBroadcast:
      gathered_.broadcast(output, bytes, payloads[static_cast<std::size_t>(spec.root)]);
      break;
    case OpKind::kBarrier: break;
  }
  request->tensors_left = 0;
  completions_.finish(request, Status::ok());
}

// In order: the next operation waits for its stream even if another one is free, so that both ends
// of every channel serve the same operations in the same order.
void Executor::start_waiting() {
  while (!waiting_.empty()) {
    Stream& stream = *streams_[started_ % streams_.size()];
    if (stream.running != nullptr) return;
    OrderedOperation next = std::move(waiting_.front());
    waiting_.pop_front();
    start(stream, std::move(next));
  }
}

void Executor::start(Stream& stream, OrderedOperation ordered) {
  ++started_;
  if (!stream.given_up.is_ok()) return end(ordered, stream.given_up);
  stream.ordered = std::move(ordered);
  if (trace_ != nullptr) {
    const Nanos now = clock_.now();
    for (const auto& tensor : stream.ordered.tensors) {
      trace_->record(Trace::Phase::kStart, tensor.request->id, tensor.request->unit->key.name, now);
    }
  }
  stream.running = &start_collective(stream, stream.ordered);
  ++running_;
}

Operation& Executor::start_collective(Stream& stream, const OrderedOperation& ordered) {
  const Communicator communicator{options_.rank, options_.size, stream.channels, &order_,
                                  static_cast<std::uint32_t>(started_)};
  const auto& tensor = ordered.tensors.front();
  const TensorSpec& spec = tensor.request->unit->tensors[tensor.index];
  const TensorBuffers& buffers = tensor.request->buffers[tensor.index];
  const std::size_t bytes = spec.count * element_bytes(spec.dtype);
  switch (spec.kind) {
    case OpKind::kAllreduce: return start_allreduce(stream, communicator, ordered);
    case OpKind::kAllgather:
      return stream.operations.start_allgather(communicator, buffers.input, buffers.output, bytes);
    case OpKind::kBroadcast:
      return stream.operations.start_broadcast(communicator, spec.root, buffers.input,
                                               buffers.output, bytes);
    case OpKind::kBarrier: return stream.operations.start_barrier(communicator);
  }
  KOLO_CHECK(false);
}

Operation& Executor::start_allreduce(Stream& stream, const Communicator& communicator,
                                     const OrderedOperation& ordered) {
  const auto& first = ordered.tensors.front();
  const TensorSpec& first_spec = first.request->unit->tensors[first.index];
  pieces_.clear();
  std::size_t bytes = 0;
  for (const auto& tensor : ordered.tensors) {
    const TensorSpec& spec = tensor.request->unit->tensors[tensor.index];
    const TensorBuffers& buffers = tensor.request->buffers[tensor.index];
    pieces_.push_back({buffers.input, buffers.output, spec.count, spec.prescale, spec.postscale});
    bytes += spec.count * element_bytes(spec.dtype);
  }
  const Algorithm algorithm = select_allreduce(options_.algorithm, bytes, options_.size);
  return stream.operations.start_allreduce(algorithm, communicator, pieces_, first_spec.dtype,
                                           first_spec.op);
}

Result<bool> Executor::advance() {
  bool moved = false;
  start_waiting();
  for (auto& stream : streams_) {
    if (stream->running == nullptr) continue;
    Result<Progress> progress = stream->running->advance();
    if (!progress) {
      stream->given_up = progress.status();
      finish(*stream, stream->given_up);
      if (stream->given_up.code() != StatusCode::kAborted) return stream->given_up;
      moved = true;
      continue;
    }
    moved = moved || *progress != Progress::kBlocked;
    if (*progress == Progress::kDone) finish(*stream, Status::ok());
  }
  return moved;
}

void Executor::finish(Stream& stream, const Status& status) {
  stream.running = nullptr;
  --running_;
  const OrderedOperation ordered = std::exchange(stream.ordered, {});
  end(ordered, status);
}

// A request ends when its last tensor has, or with the first error.
void Executor::end(const OrderedOperation& ordered, const Status& status) {
  for (const auto& tensor : ordered.tensors) {
    RequestState& request = *tensor.request;
    if (request.tensors_left == 0) continue;  // has ended with an error before
    if (status.is_ok() && --request.tensors_left > 0) continue;
    request.tensors_left = 0;
    completions_.finish(tensor.request, status);
  }
}

void Executor::end_beyond(std::uint32_t process_set, std::uint64_t through, const Status& status) {
  const auto beyond = [&](const OrderedOperation& ordered) {
    return ordered.process_set == process_set && ordered.run > through;
  };
  for (auto& stream : streams_) {
    if (stream->running == nullptr || !beyond(stream->ordered)) continue;
    stream->running->cancel();
    stream->given_up = status;
    finish(*stream, status);
  }
  std::deque<OrderedOperation> kept;
  for (OrderedOperation& ordered : waiting_) {
    if (beyond(ordered)) {
      end(ordered, status);
    } else {
      kept.push_back(std::move(ordered));
    }
  }
  waiting_ = std::move(kept);
}

void Executor::end_all(const Status& status) {
  for (auto& stream : streams_) {
    if (stream->running == nullptr) continue;
    stream->running->cancel();
    stream->given_up = status;
    finish(*stream, status);
  }
  for (const OrderedOperation& ordered : std::exchange(waiting_, {})) end(ordered, status);
}

}  // namespace kolo::internal
