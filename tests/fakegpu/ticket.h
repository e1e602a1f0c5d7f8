// The place of one piece of work in a stream: done once, waited for by anyone.
//
// Threads: any. Ownership: shared by the stream that will finish it, by events and by waiters.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace fakegpu {

class Ticket {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void finish() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    when_ = std::chrono::steady_clock::now();
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }
  // False: not done after that time.
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return done_; });
  }
  bool done() {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  Time when() {
    const std::lock_guard lock(mutex_);
    return when_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  Time when_;
};

using TicketPointer = std::shared_ptr<Ticket>;

}  // namespace fakegpu
