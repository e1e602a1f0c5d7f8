#include "core/completions.h"

#include <utility>

#include "base/check.h"

namespace kolo::internal {

void Completions::finish(const RequestPtr& request, const Status& status) {
  KOLO_CHECK(request->phase.load(std::memory_order_relaxed) == RequestState::Phase::kRunning);
  trace_phase(trace_, Trace::Phase::kDone, request->id, request->unit->key.name, clock_.now());
  request->status = status;
  if (!status.is_ok() && counts_.load(std::memory_order_acquire) &&
      status.text() == cut_off_by_.text() && ++cut_off_.requests == 1) {
    cut_off_.first = unit_text(*request->unit);
  }
  if (!request->callbacks.empty()) {
    const std::lock_guard lock(mutex_);
    for (const CompletionCallback& callback : request->callbacks) {
      due_.push_back({request->unit, callback, status});
    }
    queued_.store(true, std::memory_order_release);
  }
  units_.ended(*request);
  notify();
  if (has_callbacks() && wake_) wake_();
}

void Completions::run_callbacks() {
  std::vector<Due> due;
  {
    const std::lock_guard lock(mutex_);
    due.swap(due_);
    queued_.store(false, std::memory_order_release);
  }
  for (const Due& one : due) {
    try {
      one.callback(one.status);
    } catch (...) {
      logger_.error("the callback of " + unit_text(*one.unit) +
                    " threw an exception, which is ignored. Catch it inside the callback");
    }
  }
}

void Completions::sleep(Nanos limit, const std::function<bool()>& awake) {
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  changed_.wait_for(lock, limit, awake);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Completions::notify() {
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  { const std::lock_guard lock(mutex_); }  // a sleeper is either before its check or asleep
  changed_.notify_all();
}

}  // namespace kolo::internal
