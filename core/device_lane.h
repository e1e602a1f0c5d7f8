// DeviceLane: the way of ordered operations whose tensors are on devices.
//
//   1. The first operation of a process set with its devices holds its stream while the ranks tell
//      one another what they have (an all-gather over the roads of the CPUs); others of the same
//      devices that come meanwhile hold theirs. So all ranks decide alike, at the same place in the
//      order: by NCCL, or staged through host memory.
//   2. By NCCL: the operation leaves its stream for this lane's line, and is launched in the order
//      in which operations came, whatever their sets and communicators: two ranks never launch the
//      same two operations in different orders. The line moves on without waiting for the device.
//      With its place in the line an operation's name is free: its next one follows it.
//   3. Staged: it stays on its stream, as any operation of tensors in host memory.
//
// A communicator that has broken, or whose set has lost a rank, is given up; operations end when
// neither device nor NCCL uses their memory any more. Those that are not launched yet end at once.
// Only where a library's call does not come back, which would end them, they are left behind, after
// a patience, and said to be.
// What has been posted and does not end is warned of.
//
// Threads: the driver, but for release() and what tasks do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "core/device_road.h"
#include "core/gpus.h"
#include "core/operation_starter.h"
#include "core/unit_table.h"
#include "ops/cuda/staged.h"
#include "ops/nccl/collective_task.h"

namespace kolo::internal {

class DeviceLane {
 public:
  struct Options {
    bool staged_only = false;  // the same on all ranks
    bool whole = false;        // ... the ring takes an all-reduce in one piece
    std::size_t pack_bytes = nccl::kPackTensorBytes;  // ... larger tensors are not packed
    DeviceSetup::Rank rank;
    nccl::Communicator::Limits limits;
    Nanos stall_warning = kNever;
    Nanos patience = 5s;  // with a library's call, when what it is for has been given up
  };

  // All outlive this, but the GPUs' threads, which end first.
  DeviceLane(const Options& options, Gpus& gpus, UnitTable& units, Logger& logger);
  ~DeviceLane();

  // What a stream of the executor holds for operations on devices.
  class Stop;
  using StopPtr = std::shared_ptr<Stop>;

  // Whether it is one of ours.
  [[nodiscard]] static bool is_for(const OrderedOperation& ordered);
  // An operation takes its place. What the stream runs meanwhile; null: it has left the stream, and
  // `ordered` is empty.
  Operation* begin(StopPtr& stop, Collectives& collectives, std::uint32_t sequence,
                   OrderedOperation& ordered);
  // That was not the operation itself: go_on() tells what comes next, as begin() does.
  [[nodiscard]] static bool is_preparing(const StopPtr& stop);
  Operation* go_on(Stop& stop, OrderedOperation& ordered);
  // The operation on the stream has been given up.
  void forget(const StopPtr& stop);
  // The same, and its tasks may not have ended: with what it ends once they have. A stop that is
  // null afterwards is left behind, and the operation over.
  [[nodiscard]] Status take_back(StopPtr& stop, const Status& why);

  // Moves the line; true if anything moved.
  bool advance();
  struct Ended {
    OrderedOperation ordered;
    Status status;
    bool is_own_error = false;  // no verdict of the engine's: the context ends with it
  };
  // Good until the next call.
  [[nodiscard]] std::span<Ended> take_ended() {
    std::swap(ended_, taken_);
    return {taken_.data(), std::exchange(ended_count_, 0)};
  }

  [[nodiscard]] bool serves(std::uint32_t process_set) const;
  [[nodiscard]] bool idle() const { return line_.empty() && ended_count_ == 0; }
  void end_beyond(std::uint32_t process_set, std::uint64_t through, const Status& status);
  void end_all(const Status& status);
  // The set has ended: its communicators go when their operations have.
  void close_set(std::uint32_t process_set);
  // On the launch thread, at the end.
  void release();

 private:
  class Wait;
  class Launch;
  using Key = std::pair<std::uint32_t, std::vector<std::int32_t>>;  // set, devices of its ranks
  using KeyView = std::pair<std::uint32_t, std::span<const std::int32_t>>;
  struct KeyLess {
    using is_transparent = void;
    bool operator()(const KeyView& a, const KeyView& b) const {
      if (a.first != b.first) return a.first < b.first;
      return std::ranges::lexicographical_compare(a.second, b.second);
    }
  };
  struct Place {  // in the line
    enum class State { kUndecided, kReady, kPosted, kGone, kLeftBehind };
    State state = State::kUndecided;
    std::uint32_t process_set = 0;
    std::uint64_t run = 0;
    DeviceRoad* road = nullptr;
    std::unique_ptr<Launch> launch;
    Status given_up;  // with which it ends, whatever becomes of it
    Nanos posted_at{0};
    Nanos next_warning = kNever;
  };

  [[nodiscard]] const char* why_staged(const OrderedOperation& ordered) const;
  DeviceRoad& road_of(const OrderedOperation& ordered);
  Place& append(const OrderedOperation& ordered, DeviceRoad& road);
  void tell(const OrderedOperation& ordered, const std::string& why, bool is_expected);
  Operation* stage(Stop& stop, OrderedOperation& ordered);
  void take(Place& place, OrderedOperation& ordered);
  void decide(Stop& stop, const OrderedOperation& ordered);
  bool post_ready();
  void take_back(Place& place);
  void warn_of_stall();
  bool end(Place& place);
  void leave_line();
  void close_roads();

  Options options_;
  Gpus& gpus_;
  UnitTable& units_;
  const Clock& clock_;  // the GPUs' own
  Logger& logger_;
  std::map<Key, std::unique_ptr<DeviceRoad>, KeyLess> roads_;
  std::vector<std::unique_ptr<DeviceRoad>> closing_;
  std::deque<std::unique_ptr<Place>> line_;
  std::vector<std::unique_ptr<Place>> spare_;
  std::vector<std::unique_ptr<Place>> left_behind_;
  Nanos next_stall_look_ = kNever;
  std::vector<StopPtr> stops_;
  std::vector<Ended> ended_;  // the first ended_count_; the others keep their memory for the next
  std::vector<Ended> taken_;
  std::size_t ended_count_ = 0;
  std::set<std::string> said_;  // reasons for staging, each logged once
};

}  // namespace kolo::internal
