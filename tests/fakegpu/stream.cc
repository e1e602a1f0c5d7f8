#include "tests/fakegpu/stream.h"

#include <pthread.h>

#include <thread>
#include <utility>

#include "tests/fakegpu/device.h"

namespace fakegpu {

TicketPointer Stream::push(std::vector<TicketPointer> before, Work work) {
  auto ticket = std::make_shared<Ticket>();
  const std::lock_guard lock(mutex_);
  queue_.push_back({std::move(before), std::move(work), ticket});
  last_ = ticket;
  if (!is_running_) {
    is_running_ = true;
    // The thread holds the stream; the machine that it works for is never taken down.
    std::thread([self = shared_from_this()] { self->run(); }).detach();
  }
  changed_.notify_all();
  return ticket;
}

TicketPointer Stream::tail() {
  const std::lock_guard lock(mutex_);
  return last_ != nullptr && !last_->done() ? last_ : nullptr;
}

void Stream::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

void Stream::push_gate() {
  auto gate = std::make_shared<Ticket>();
  {
    const std::lock_guard lock(mutex_);
    gates_.push_back(gate);
  }
  push({gate}, {});
}

bool Stream::open_gate() {
  const std::lock_guard lock(mutex_);
  if (gates_.empty()) return false;
  gates_.front()->finish();
  gates_.pop_front();
  return true;
}

void Stream::run() {
  pthread_setname_np(pthread_self(), "fakegpu stream");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !queue_.empty() || is_closed_; });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    for (const TicketPointer& ticket : item.before) ticket->wait();
    if (item.work) device_.work(item.work);
    item.work = nullptr;  // what it holds goes before anyone hears that it is done
    item.ticket->finish();
    lock.lock();
  }
}

}  // namespace fakegpu
