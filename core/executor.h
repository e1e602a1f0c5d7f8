// Executor: runs ordered operations over its streams. Operations start in the order in which they
// are given, and may end in any. The world's n-th runs on stream n modulo the number of streams;
// each other process set has one stream for all of its own. So both ends of every channel serve the
// same operations in the same order, although ranks are in different sets.
//
// advance() never blocks. Threads: the driver only, but for the gathered collectives, see there.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "coordinator/member.h"
#include "core/completions.h"
#include "core/device_lane.h"
#include "core/operation_starter.h"
#include "core/recycled_queue.h"
#include "core/request_state.h"
#include "core/result_counter.h"
#include "ops/collectives.h"
#include "ops/gathered.h"

namespace kolo::internal {

class Executor {
 public:
  struct Options {
    int rank = 0;
    AlgorithmChoice algorithm = AlgorithmChoice::kAuto;
  };
  using Streams = std::vector<std::unique_ptr<Collectives>>;  // at least one

  // `streams` hold the world's collectives.
  Executor(const Options& options, Streams streams, Completions& completions, const Clock& clock);

  // From now on operations of that set may come, which run on that stream. The collectives outlive
  // the executor.
  void add_set(std::uint32_t process_set, Collectives& collectives, std::size_t stream);

  void set_trace(Trace* trace) { trace_ = trace; }
  // The way of operations on devices; outlives this.
  void set_lane(DeviceLane& lane) { lane_ = &lane; }
  // The set has ended: with its last operation here go its communicators of devices.
  void close_set(std::uint32_t process_set) { closing_sets_.push_back(process_set); }
  // The bytes of a single small tensor that may travel with the word of its readiness: this rank's
  // contribution. Nothing for larger tensors, for groups, and where the ring was asked for: a
  // tensor must not change its order of additions once it is known.
  [[nodiscard]] std::optional<std::string> payload_of(const RequestState& request) const;
  // A place at the end of the line, to be filled in; it is empty.
  OrderedOperation& enqueue();

  // A single tensor of which every rank's bytes lie in the slots, in rank order: its result. One
  // caller at a time, who need not be the driver; the request is then to be finished.
  void gather_from_slots(RequestState& request, std::span<const std::byte* const> contributions);
  // A single tensor whose bytes came with the order; ends the request.
  void complete(const RequestPtr& request, const std::vector<std::string>& payloads);

  // True if anything moved. An error is an operation's: it has ended with it. A channel that has
  // broken, or whose peer has taken leave, is no such error, as it does not say why: the operation
  // is stuck then, until a verdict ends it.
  Result<bool> advance();
  struct Stuck {
    std::size_t stream = 0;
    Nanos since{0};
    Status status;  // the channel's
  };
  // The one that has been stuck for longest.
  [[nodiscard]] std::optional<Stuck> longest_stuck() const;
  // Ends that operation, and the later ones of its set, with what its channel says.
  void give_up_stuck(std::size_t stream);
  // Ends the operations of the set's runs beyond `through`.
  void end_beyond(std::uint32_t process_set, std::uint64_t through, const Status& status);
  void end_all(const Status& status);

  // Operations of the set are running, or wait for their stream.
  [[nodiscard]] bool serves(std::uint32_t process_set) const;
  [[nodiscard]] bool idle() const {
    return running_ == 0 && waiting_.empty() && (lane_ == nullptr || lane_->idle());
  }
  // Into and out of shared memory, by operations that have ended. Any thread.
  [[nodiscard]] std::uint64_t bytes_copied() const {
    return bytes_copied_.load(std::memory_order_relaxed);
  }

 private:
  struct Stream {
    std::unique_ptr<Collectives> collectives;  // of the world
    OperationStarter starter;
    Operation* running = nullptr;
    ResultCounter counter;  // after it
    bool counting = false;
    std::optional<Status> stuck;  // why it does not move any more
    Nanos stuck_since{0};
    std::optional<Status> ending;  // it has been given up, and a device still uses its memory
    OrderedOperation ordered;
    DeviceLane::StopPtr stop;  // for operations on devices
  };

  void gather(GatheredCollectives& gathered, RequestState& request,
              std::span<const std::byte* const> contributions);
  struct Set {
    Collectives* collectives = nullptr;  // null: the stream's
    std::size_t stream = 0;
    std::uint32_t started = 0;
    Status given_up;  // why no more of it is started
  };

  void start_waiting();
  [[nodiscard]] Stream& stream_of(const OrderedOperation& ordered);
  void start(Stream& stream);
  Result<Progress> advance(Stream& stream);
  Progress go_on(Stream& stream);
  void give_up(Stream& stream, const Status& status);
  void advance_ending(Stream& stream);
  [[nodiscard]] Status named(const Stream& stream, const Status& status);
  void finish(Stream& stream, const Status& status);
  Result<bool> advance_lane();
  void end(OrderedOperation& ordered, const Status& status);

  Options options_;
  Completions& completions_;
  const Clock& clock_;
  Trace* trace_ = nullptr;
  DeviceLane* lane_ = nullptr;
  std::vector<std::uint32_t> closing_sets_;
  std::deque<Stream> streams_;
  std::unordered_map<std::uint32_t, Set> sets_;
  std::vector<Collectives*> of_sets_;  // each once: ended sets leave theirs to new ones
  RecycledQueue<OrderedOperation> waiting_;
  GatheredCollectives gathered_;
  GatheredCollectives slot_gathered_;
  std::vector<const std::byte*> contributions_;  // scratch
  std::size_t running_ = 0;
  Status over_;  // why nothing is started any more
  std::atomic<std::uint64_t> bytes_copied_{0};
};

}  // namespace kolo::internal
