// An event: the place in a stream where it was recorded last. Never recorded, it is an empty wait.
//
// Threads: any. Ownership: shared by the handle table and the calls that use it.
#pragma once

#include <mutex>
#include <utility>

#include "tests/fakegpu/ticket.h"

namespace fakegpu {

class Event {
 public:
  Event(int device, unsigned flags) : device_(device), flags_(flags) {}

  int device() const { return device_; }
  unsigned flags() const { return flags_; }

  void record(TicketPointer ticket) {
    const std::lock_guard lock(mutex_);
    ticket_ = std::move(ticket);
    captured_ = false;
  }
  void record_captured() {
    const std::lock_guard lock(mutex_);
    ticket_ = nullptr;
    captured_ = true;
  }
  bool is_captured() {
    const std::lock_guard lock(mutex_);
    return captured_;
  }
  // What a wait that begins now waits for; null: nothing.
  TicketPointer ticket() {
    const std::lock_guard lock(mutex_);
    return ticket_;
  }

 private:
  const int device_;
  const unsigned flags_;
  std::mutex mutex_;
  TicketPointer ticket_;
  bool captured_ = false;
};

}  // namespace fakegpu
