// Completions: the one place where an operation ends. Frees its name, publishes its status, hands
// its callbacks to the background thread and wakes whoever waits.
//
// finish() by whoever the request was handed to; the rest from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "core/request_state.h"
#include "core/trace.h"
#include "core/unit_table.h"

namespace kolo::internal {

class Completions {
 public:
  Completions(UnitTable& units, const Clock& clock, Logger& logger)
      : units_(units), clock_(clock), logger_(logger) {}
  void set_trace(Trace* trace) { trace_ = trace; }
  // Called when a callback has been queued.
  void set_callback_wake(std::function<void()> wake) { wake_ = std::move(wake); }

  // Exactly once per run of a request; a second time is a Bug.
  void finish(const RequestPtr& request, const Status& status);

  // Requests that were cut off, and the first of them, for people.
  struct CutOff {
    std::size_t requests = 0;
    std::string first;
  };
  // From now on those that end with this very status are counted. Both by the driver only.
  void count_cut_off(const Status& status) {
    cut_off_by_ = status;
    counts_.store(true, std::memory_order_release);
  }
  [[nodiscard]] const CutOff& cut_off() const { return cut_off_; }

  // Runs what is queued, on the calling thread, with no lock held. What a callback throws is
  // logged and goes no further.
  void run_callbacks();
  [[nodiscard]] bool has_callbacks() const { return queued_.load(std::memory_order_acquire); }

  // Sleeps until `awake` holds, somebody notifies, or `limit`; `awake` is asked under the lock.
  void sleep(Nanos limit, const std::function<bool()>& awake);
  void notify();  // cheap when nobody sleeps

 private:
  struct Due {
    UnitPtr unit;
    CompletionCallback callback;
    Status status;
  };

  UnitTable& units_;
  const Clock& clock_;
  Logger& logger_;
  Trace* trace_ = nullptr;
  std::function<void()> wake_;
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Due> due_;
  std::atomic<bool> queued_{false};
  std::atomic<bool> counts_{false};
  Status cut_off_by_;  // once it counts
  CutOff cut_off_;
};

}  // namespace kolo::internal
