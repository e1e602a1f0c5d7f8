// RequestState: one submission from its call to its completion; RequestPtr, a share in it; and
// RequestPool, which keeps them for reuse and finds them by id.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "coordinator/unit.h"
#include "core/request.h"
#include "ops/cuda/event_pool.h"

namespace kolo::internal {

class RequestPool;
struct UnitEntry;
struct ProcessSet;

struct TensorBuffers {
  const void* input = nullptr;
  void* output = nullptr;
  std::int32_t device = kHostMemory;  // where both lie
  void* stream = nullptr;             // of a device: what the input's maker is queued on
  cuda::EventRef ready;               // ... and the event behind that, of the call
  // Where the caller wants to know more of the result; null: nowhere.
  std::int32_t* participants = nullptr;
  std::int64_t* nonfinite = nullptr;
  std::int64_t found = -1;  // ... what was counted on a device, or on the way there
};

// Written by the submitting thread until it is queued or published, then by the driver until
// `phase` is kDone; `status` may be read once kDone has been seen.
struct RequestState {
  enum class Phase : int { kIdle, kOpen, kRunning, kDone };  // kOpen: its group is not ended yet

  RequestId id = 0;
  ProcessSet* set = nullptr;
  UnitPtr unit;
  std::vector<TensorBuffers> buffers;  // one per tensor of the unit
  // Per tensor whose ranks give numbers of their own: all of them, from the order. Else empty.
  std::vector<std::vector<std::uint64_t>> counts;
  int absent = 0;                  // ranks that had joined when it was ordered
  std::int32_t* number = nullptr;  // where a new set's id goes, or who joined last
  // Where the library allocates the output, or this rank gives neutral elements.
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::unique_ptr<void, std::function<void(void*)>> device_memory;  // the same on a device
  bool allocates = false;                                           // the output is the library's
  std::size_t output_count = 0;                                     // ... its elements
  std::vector<std::size_t> output_counts;                           // ... by rank that gave them
  std::vector<CompletionCallback> callbacks;
  // Of tensors on devices: how many are not queued there yet; and events behind those that are,
  // which is the launch thread's list until that number is 0.
  std::atomic<std::size_t> unlaunched{0};
  std::vector<cuda::EventRef> launched;
  Nanos timeout = kNever;
  Nanos deadline = kNever;
  bool persistent = false;
  std::size_t tensors_left = 0;      // not yet executed
  UnitEntry* entry = nullptr;        // the unit table's, while it is under way and has its name
  bool counts_without_name = false;  // it is under way, and its name is free: the unit table's
  std::size_t in_line = 0;           // tensors that wait for their device, or are there
  Status status;
  std::atomic<Phase> phase{Phase::kIdle};

  // The caller's handle outlives the completion.
  [[nodiscard]] bool is_kept() const { return persistent || allocates; }
  [[nodiscard]] bool is_launched() const {
    return unlaunched.load(std::memory_order_acquire) == 0 || done();
  }
  [[nodiscard]] bool done() const { return phase.load(std::memory_order_acquire) == Phase::kDone; }

 private:
  friend class RequestPtr;
  friend class RequestPool;
  std::atomic<int> shares_{0};
  RequestPool* pool_ = nullptr;
  int handles_ = 0;  // of callers; under the pool's lock
};

// The caller's handle and the engine share a request.
class RequestPtr {
 public:
  RequestPtr() = default;
  RequestPtr(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  RequestPtr(const RequestPtr& other) : state_(other.state_) {
    if (state_ != nullptr) state_->shares_.fetch_add(1, std::memory_order_relaxed);
  }
  RequestPtr(RequestPtr&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  RequestPtr& operator=(RequestPtr other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  inline ~RequestPtr();

  RequestState* operator->() const { return state_; }
  RequestState& operator*() const { return *state_; }
  explicit operator bool() const { return state_ != nullptr; }
  bool operator==(std::nullptr_t) const { return state_ == nullptr; }

 private:
  friend class RequestPool;
  explicit RequestPtr(RequestState* state) : state_(state) {
    state_->shares_.fetch_add(1, std::memory_order_relaxed);
  }
  RequestState* state_ = nullptr;
};

// Thread-safe; outlives its requests. Ids are not used twice.
class RequestPool {
 public:
  RequestPool() = default;
  RequestPool(const RequestPool&) = delete;
  RequestPool& operator=(const RequestPool&) = delete;

  // A fresh request with an id, by which find() knows it while callers have handles of it.
  RequestPtr make() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      KOLO_CHECK(states_.size() + 1 < kNextUse);
      states_.emplace_back();
      states_.back().pool_ = this;
      states_.back().id = states_.size();
      return RequestPtr(&states_.back());
    }
    RequestState* state = free_.back();
    free_.pop_back();
    state->id += kNextUse;
    return RequestPtr(state);
  }
  void give_handle(const RequestPtr& request) {
    const std::lock_guard lock(mutex_);
    if (request->handles_++ == 0) ++request->shares_;
  }
  [[nodiscard]] RequestPtr find(RequestId id) {
    const std::lock_guard lock(mutex_);
    RequestState* state = look_up(id);
    return state == nullptr ? RequestPtr() : RequestPtr(state);
  }
  void drop_handle(RequestId id) {
    RequestPtr last;  // gives the request back after the lock is gone
    const std::lock_guard lock(mutex_);
    RequestState* state = look_up(id);
    if (state == nullptr || --state->handles_ > 0) return;
    last.state_ = state;  // takes over the handles' share
  }

 private:
  friend class RequestPtr;
  static constexpr RequestId kNextUse = RequestId{1} << 24;  // above the place in `states_`

  RequestState* look_up(RequestId id) {
    const std::uint64_t place = id % kNextUse;
    if (place == 0 || place > states_.size()) return nullptr;
    RequestState& state = states_[place - 1];
    return state.handles_ > 0 && state.id == id ? &state : nullptr;
  }
  // Nobody shares it any more.
  void take_back(RequestState& state) {
    state.set = nullptr;
    state.unit.reset();
    state.buffers.clear();
    state.counts.clear();
    state.absent = 0;
    state.number = nullptr;
    state.memory.clear();
    state.device_memory.reset();
    state.allocates = false;
    state.output_count = 0;
    state.output_counts.clear();
    state.callbacks.clear();
    state.in_line = 0;
    state.unlaunched.store(0, std::memory_order_relaxed);
    state.launched.clear();
    state.timeout = kNever;
    state.deadline = kNever;
    state.persistent = false;
    state.tensors_left = 0;
    state.status = Status::ok();
    state.phase.store(RequestState::Phase::kIdle, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    free_.push_back(&state);
  }

  std::mutex mutex_;
  std::deque<RequestState> states_;  // never moved
  std::vector<RequestState*> free_;
};

inline RequestPtr::~RequestPtr() {
  if (state_ == nullptr || state_->shares_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  state_->pool_->take_back(*state_);
}

}  // namespace kolo::internal
