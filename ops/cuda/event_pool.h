// EventPool: CUDA events of one device, made ahead and used again; EventRef, a share in one of
// them, which goes back to its pool with the last share.
//
// Events carry no times, and who waits for one sleeps. Threads: make() and destroy_all() on the
// thread that owns the pool, with the device current; take() and all of EventRef on any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ops/cuda/runtime.h"

namespace kolo::internal::cuda {

class EventPool;

struct PooledEvent {
  EventHandle handle = nullptr;
  int device = 0;
  EventPool* pool = nullptr;
  std::atomic<int> shares{0};
};

class EventRef {
 public:
  EventRef() = default;
  EventRef(const EventRef& other) : event_(other.event_) {
    if (event_ != nullptr) event_->shares.fetch_add(1, std::memory_order_relaxed);
  }
  EventRef(EventRef&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  EventRef& operator=(EventRef other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~EventRef();

  explicit operator bool() const { return event_ != nullptr; }
  [[nodiscard]] EventHandle handle() const { return event_->handle; }
  [[nodiscard]] int device() const { return event_->device; }

 private:
  friend class EventPool;
  explicit EventRef(PooledEvent& event) : event_(&event) {
    event.shares.store(1, std::memory_order_relaxed);
  }
  PooledEvent* event_ = nullptr;
};

class EventPool {
 public:
  EventPool(const Runtime& runtime, int device) : runtime_(runtime), device_(device) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // More of them, until `wanted` are free. CUDA_ERROR.
  Status make(std::size_t wanted);
  // None, if none is free.
  [[nodiscard]] EventRef take();
  [[nodiscard]] std::size_t free_count() const;
  // Shares that are still out hold a null handle from now on. No event may be in use.
  void destroy_all();

 private:
  friend class EventRef;
  void give_back(PooledEvent& event);

  const Runtime& runtime_;
  int device_;
  mutable std::mutex mutex_;
  std::deque<PooledEvent> events_;  // never moved
  std::vector<PooledEvent*> free_;
};

inline EventRef::~EventRef() {
  if (event_ == nullptr || event_->shares.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  event_->pool->give_back(*event_);
}

}  // namespace kolo::internal::cuda
