// Task: a piece of work for a device, from the thread that wants it to kolo's launch thread, which
// queues it, and on to the device's finisher, which sleeps until it is done. LaunchThread moves it
// along; whoever posted it keeps it alive until it has ended, and may then post it again.
#pragma once

#include <atomic>
#include <utility>

#include "base/status.h"
#include "ops/cuda/event_pool.h"

namespace kolo::internal::cuda {

class Task {
 public:
  enum class Phase : int {
    kIdle,      // nobody's but its owner's
    kPosted,    // on its way
    kLaunched,  // its work is queued on the device, or it had none
    kEnded,     // its work is done, or failed: see status()
  };

  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  [[nodiscard]] Phase phase() const { return phase_.load(std::memory_order_acquire); }
  // Neither the device nor a thread of kolo's uses it or its memory any more.
  [[nodiscard]] bool is_idle() const { return phase() == Phase::kIdle || phase() == Phase::kEnded; }
  [[nodiscard]] const Status& status() const { return status_; }  // of an ended task

 protected:
  // On the launch thread: queues the work on a stream of the device. Returns the event behind it,
  // of Device::record(); none, if there is nothing to wait for.
  virtual Result<EventRef> launch() = 0;
  // Right after that, before anybody hears of it. `done`: may be none.
  virtual void launched(const EventRef& /*done*/) {}
  // On the finisher, when the event is over: what became of the work beside errors of the device.
  [[nodiscard]] virtual Status verdict() { return Status::ok(); }

 private:
  friend class Finisher;
  friend class LaunchThread;

  void set_phase(Phase phase) { phase_.store(phase, std::memory_order_release); }
  void end(Status status) {
    status_ = std::move(status);
    set_phase(Phase::kEnded);
  }

  std::atomic<Phase> phase_{Phase::kIdle};
  EventRef done_;
  StreamHandle drained_ = nullptr;  // to be waited for where there is no event
  Status failure_;                  // and with what it ends then
  Status status_;
};

}  // namespace kolo::internal::cuda
