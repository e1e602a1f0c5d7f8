#include "core/executor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/process_sets.h"

namespace kolo::internal {
namespace {

// What a channel says when its peer is gone, one way or the other.
bool is_of_channel(const Status& status) {
  return status.code() == StatusCode::kPeerLost || status.code() == StatusCode::kAborted;
}

}  // namespace

std::optional<std::string> Executor::payload_of(const RequestState& request) const {
  if (!payload_may_travel(*request.unit)) return std::nullopt;
  const TensorSpec& spec = request.unit->tensors.front();
  const bool by_ring =
      spec.kind == OpKind::kAllreduce && options_.algorithm == AlgorithmChoice::kRing;
  if (by_ring) return std::nullopt;
  const bool contributes = spec.kind != OpKind::kBroadcast || spec.root == options_.rank;
  if (!contributes || spec.count == 0) return std::string();
  return std::string(static_cast<const char*>(request.buffers.front().input),
                     spec.count * element_bytes(spec.dtype));
}

Executor::Executor(const Options& options, Streams streams, Completions& completions,
                   const Clock& clock)
    : options_(options), completions_(completions), clock_(clock) {
  KOLO_CHECK(!streams.empty());
  for (auto& collectives : streams) {
    streams_.emplace_back();
    streams_.back().collectives = std::move(collectives);
  }
  sets_[0] = {};
}

void Executor::add_set(std::uint32_t process_set, Collectives& collectives, std::size_t stream) {
  KOLO_CHECK(stream < streams_.size());
  sets_[process_set] = {&collectives, stream, 0, {}};
  if (std::find(of_sets_.begin(), of_sets_.end(), &collectives) == of_sets_.end()) {
    of_sets_.push_back(&collectives);
  }
}

OrderedOperation& Executor::enqueue() {
  OrderedOperation& place = waiting_.push();
  place.tensors.clear();
  return place;
}

void Executor::gather(GatheredCollectives& gathered, RequestState& request,
                      std::span<const std::byte* const> contributions) {
  const TensorSpec& spec = request.unit->tensors.front();
  trace_phase(trace_, Trace::Phase::kStart, request.id, request.unit->key.name, clock_.now());
  void* const output = request.buffers.front().output;
  const std::size_t bytes = spec.count * element_bytes(spec.dtype);
  switch (spec.kind) {
    case OpKind::kAllreduce:
      gathered.allreduce(request.set->order,
                         {nullptr, output, spec.count, spec.prescale, spec.postscale},
                         {spec.dtype, spec.op}, contributions);
      break;
    case OpKind::kAllgather: gathered.allgather(output, bytes, contributions); break;
    case OpKind::kBroadcast:
      gathered.broadcast(output, bytes,
                         contributions[static_cast<std::size_t>(request.set->place_of(spec.root))]);
      break;
    case OpKind::kBarrier: break;
    case OpKind::kReduceScatter:
    case OpKind::kAlltoall:
    case OpKind::kCreateSet:
    case OpKind::kDestroySet: KOLO_CHECK(false);
  }
  request.tensors_left = 0;
  ResultCounter counter;
  counter.add(request, 0);
  KOLO_CHECK(counter.done());
}

void Executor::gather_from_slots(RequestState& request,
                                 std::span<const std::byte* const> contributions) {
  trace_phase(trace_, Trace::Phase::kOrdered, request.id, request.unit->key.name, clock_.now());
  gather(slot_gathered_, request, contributions);
}

void Executor::complete(const RequestPtr& request, const std::vector<std::string>& payloads) {
  contributions_.clear();
  for (const std::string& payload : payloads) {
    contributions_.push_back(reinterpret_cast<const std::byte*>(payload.data()));
  }
  gather(gathered_, *request, contributions_);
  completions_.finish(request, Status::ok());
}

// In order: the next operation waits for its stream even if another one is free.
void Executor::start_waiting() {
  while (!waiting_.empty()) {
    Stream& stream = stream_of(waiting_.front());
    if (stream.running != nullptr) return;
    std::swap(stream.ordered, waiting_.front());
    waiting_.pop();
    start(stream);
  }
}

Executor::Stream& Executor::stream_of(const OrderedOperation& ordered) {
  const Set& set = sets_.at(ordered.process_set);
  return streams_[set.collectives == nullptr ? set.started % streams_.size() : set.stream];
}

void Executor::start(Stream& stream) {
  Set& set = sets_.at(stream.ordered.process_set);
  const std::uint32_t number = ++set.started;
  if (!over_.is_ok()) return end(stream.ordered, over_);
  if (!set.given_up.is_ok()) return end(stream.ordered, set.given_up);
  if (trace_ != nullptr) {
    const Nanos now = clock_.now();
    for (const auto& tensor : stream.ordered.tensors) {
      trace_->record(Trace::Phase::kStart, tensor.request->id, tensor.request->unit->key.name, now);
    }
  }
  Collectives& collectives = set.collectives == nullptr ? *stream.collectives : *set.collectives;
  const std::uint32_t sequence = (stream.ordered.process_set << 20) + number;
  if (lane_ != nullptr && DeviceLane::is_for(stream.ordered)) {
    stream.running = lane_->begin(stream.stop, collectives, sequence, stream.ordered);
    if (stream.running == nullptr) return;
  } else {
    stream.running = &stream.starter.start(collectives, sequence, stream.ordered);
  }
  ++running_;
}

// What prepared an operation on devices is over, and the operation itself comes, or has left.
Progress Executor::go_on(Stream& stream) {
  stream.running = lane_->go_on(*stream.stop, stream.ordered);
  if (stream.running == nullptr) --running_;
  return Progress::kMoved;
}

// The operation, then the count of what its outputs hold, if somebody wants to know.
Result<Progress> Executor::advance(Stream& stream) {
  if (!stream.counting) {
    const Result<Progress> progress = stream.running->advance();
    if (!progress || *progress != Progress::kDone) return progress;
    if (DeviceLane::is_preparing(stream.stop)) return go_on(stream);
    for (const auto& tensor : stream.ordered.tensors) {
      stream.counter.add(*tensor.request, tensor.index);
    }
    stream.counting = true;
  } else if (!stream.counter.done()) {
    stream.counter.advance();
  }
  return stream.counter.done() ? Progress::kDone : Progress::kMoved;
}

Result<bool> Executor::advance() {
  bool moved = false;
  start_waiting();
  for (Stream& stream : streams_) {
    if (stream.running == nullptr || stream.stuck) continue;
    if (stream.ending) {
      advance_ending(stream);
      continue;
    }
    const Result<Progress> progress = advance(stream);
    if (!progress && is_of_channel(progress.status())) {
      stream.stuck = progress.status();
      stream.stuck_since = clock_.now();
      continue;
    }
    if (!progress) {
      const Status status = named(stream, progress.status());
      sets_.at(stream.ordered.process_set).given_up = status;
      give_up(stream, status);
      return status;
    }
    moved = moved || *progress != Progress::kBlocked;
    if (*progress == Progress::kDone) finish(stream, Status::ok());
  }
  if (lane_ == nullptr) return moved;
  const Result<bool> lane_moved = advance_lane();
  if (!lane_moved) return lane_moved;
  return moved || *lane_moved;
}

Result<bool> Executor::advance_lane() {
  std::erase_if(closing_sets_, [this](std::uint32_t set) {
    if (serves(set)) return false;
    lane_->close_set(set);
    return true;
  });
  const bool moved = lane_->advance();
  if (!moved) return false;
  Status own_error;
  for (DeviceLane::Ended& ended : lane_->take_ended()) {
    if (ended.is_own_error && own_error.is_ok()) own_error = ended.status;
    ResultCounter counter;  // of results in device memory it only tells
    for (const auto& tensor : ended.ordered.tensors) {
      if (ended.status.is_ok()) counter.add(*tensor.request, tensor.index);
    }
    end(ended.ordered, ended.status);
  }
  if (!own_error.is_ok()) return own_error;
  return true;
}

// Errors of devices know nothing of tensors.
Status Executor::named(const Stream& stream, const Status& status) {
  if (lane_ == nullptr || !DeviceLane::is_for(stream.ordered)) return status;
  const Unit& unit = *stream.ordered.tensors.front().request->unit;
  return {status.code(), unit_text(unit) + ": " + status.text()};
}

// Its end comes when nothing uses the caller's memory any more.
void Executor::give_up(Stream& stream, const Status& status) {
  if (stream.running->is_busy()) {
    stream.stuck.reset();
    stream.ending = status;
    return;
  }
  finish(stream, status);
}

// It has been given up, and a device uses the caller's memory, or waits to.
void Executor::advance_ending(Stream& stream) {
  Status status = *stream.ending;
  const bool on_devices = stream.stop != nullptr;
  if (lane_ != nullptr) status = lane_->take_back(stream.stop, status);
  const bool is_left = on_devices && stream.stop == nullptr;
  if (is_left || !stream.running->is_busy()) finish(stream, status);
}

void Executor::give_up_stuck(std::size_t stream) {
  Stream& given_up = streams_[stream];
  const Status status = *given_up.stuck;
  sets_.at(given_up.ordered.process_set).given_up = status;
  give_up(given_up, status);
}

void Executor::finish(Stream& stream, const Status& status) {
  if (lane_ != nullptr) lane_->forget(stream.stop);
  stream.running = nullptr;
  stream.counting = false;
  stream.stuck.reset();
  stream.ending.reset();
  --running_;
  std::uint64_t bytes = 0;
  for (const Stream& each : streams_) bytes += each.collectives->bytes_copied();
  for (const Collectives* collectives : of_sets_) bytes += collectives->bytes_copied();
  bytes_copied_.store(bytes, std::memory_order_relaxed);
  end(stream.ordered, status);
}

// A request ends when its last tensor has, or with the first error.
void Executor::end(OrderedOperation& ordered, const Status& status) {
  for (const auto& tensor : ordered.tensors) {
    RequestState& request = *tensor.request;
    if (request.tensors_left == 0) continue;  // has ended with an error before
    if (status.is_ok() && --request.tensors_left > 0) continue;
    request.tensors_left = 0;
    completions_.finish(tensor.request, status);
  }
  ordered.tensors.clear();
}

bool Executor::serves(std::uint32_t process_set) const {
  for (const Stream& stream : streams_) {
    if (stream.running != nullptr && stream.ordered.process_set == process_set) return true;
  }
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    if (waiting_[i].process_set == process_set) return true;
  }
  return lane_ != nullptr && lane_->serves(process_set);
}

void Executor::end_beyond(std::uint32_t process_set, std::uint64_t through, const Status& status) {
  const auto beyond = [&](const OrderedOperation& ordered) {
    return ordered.process_set == process_set && ordered.run > through;
  };
  for (Stream& stream : streams_) {
    if (stream.running == nullptr || stream.ending || !beyond(stream.ordered)) continue;
    stream.running->cancel();
    give_up(stream, status);
  }
  if (lane_ != nullptr) lane_->end_beyond(process_set, through, status);
  for (std::size_t left = waiting_.size(); left > 0; --left) {
    OrderedOperation ordered = std::exchange(waiting_.front(), {});
    waiting_.pop();
    if (beyond(ordered)) {
      end(ordered, status);
    } else {
      enqueue() = std::move(ordered);
    }
  }
}

std::optional<Executor::Stuck> Executor::longest_stuck() const {
  std::optional<Stuck> longest;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const Stream& stream = streams_[i];
    if (!stream.stuck || (longest && longest->since <= stream.stuck_since)) continue;
    longest = {i, stream.stuck_since, *stream.stuck};
  }
  return longest;
}

void Executor::end_all(const Status& status) {
  over_ = status;
  for (Stream& stream : streams_) {
    if (stream.running == nullptr || stream.ending) continue;
    stream.running->cancel();
    give_up(stream, status);
  }
  if (lane_ != nullptr) lane_->end_all(status);
  while (!waiting_.empty()) {
    OrderedOperation ordered = std::exchange(waiting_.front(), {});
    waiting_.pop();
    end(ordered, status);
  }
}

}  // namespace kolo::internal
