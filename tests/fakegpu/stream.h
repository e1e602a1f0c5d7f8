// A stream: a queue of work and one thread that does it in order. The thread begins with the first
// piece of work and ends after the last one of a closed stream.
//
// Threads: any. Ownership: shared by the handle table, the device and the running thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/fakegpu/ticket.h"

namespace fakegpu {

class Device;

enum class StreamKind {
  kLegacy,       // the default stream: in order with all blocking ones of its device
  kBlocking,     // created without flags, and the default stream of a thread
  kNonBlocking,  // on its own
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  // May block; is not called on a broken device.
  using Work = std::function<void()>;

  Stream(Device& device, StreamKind kind) : device_(device), kind_(kind) {}

  Device& device() const { return device_; }
  StreamKind kind() const { return kind_; }

  // Puts work into the queue, to be begun when `before` are done. The result is its place.
  TicketPointer push(std::vector<TicketPointer> before, Work work);
  // The place of the last work so far; null when there is none that is not done.
  TicketPointer tail();
  bool is_idle() { return tail() == nullptr; }
  // No work comes after this; what is in the queue is still done.
  void close();

  // A gate holds back what comes behind it; open_gate() opens the oldest. False: there is none.
  void push_gate();
  bool open_gate();

  // Capture: kCaptureNone, kCaptureActive or kCaptureInvalidated of ops/cuda/abi.h.
  std::atomic<int> capture{0};
  std::atomic<int> capture_mode{0};

 private:
  struct Item {
    std::vector<TicketPointer> before;
    Work work;
    TicketPointer ticket;
  };
  void run();

  Device& device_;
  const StreamKind kind_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  TicketPointer last_;
  std::deque<TicketPointer> gates_;
  bool is_running_ = false;
  bool is_closed_ = false;
};

using StreamPointer = std::shared_ptr<Stream>;

}  // namespace fakegpu
