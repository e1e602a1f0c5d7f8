#include "ops/cuda/event_pool.h"

namespace kolo::internal::cuda {

Status EventPool::make(std::size_t wanted) {
  while (free_count() < wanted) {
    EventHandle handle = nullptr;
    const Error error =
        runtime_.cudaEventCreateWithFlags(&handle, kEventBlockingSync | kEventDisableTiming);
    KOLO_RETURN_IF_ERROR(runtime_.status_of(error, "cudaEventCreateWithFlags"));
    const std::lock_guard lock(mutex_);
    PooledEvent& event = events_.emplace_back();
    event.handle = handle;
    event.device = device_;
    event.pool = this;
    free_.reserve(events_.size());
    free_.push_back(&event);
  }
  return Status::ok();
}

EventRef EventPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return {};
  PooledEvent& event = *free_.back();
  free_.pop_back();
  return EventRef(event);
}

std::size_t EventPool::free_count() const {
  const std::lock_guard lock(mutex_);
  return free_.size();
}

void EventPool::give_back(PooledEvent& event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(&event);
}

void EventPool::destroy_all() {
  const std::lock_guard lock(mutex_);
  for (PooledEvent& event : events_) {
    const EventHandle handle = std::exchange(event.handle, nullptr);
    if (handle != nullptr) runtime_.cudaEventDestroy(handle);
  }
}

}  // namespace kolo::internal::cuda
