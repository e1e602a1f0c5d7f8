// RequestState: one submission from its call to its completion, and HandleTable: ids for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/unit.h"
#include "core/request.h"

namespace kolo::internal {

struct TensorBuffers {
  const void* input = nullptr;
  void* output = nullptr;
};

// Written by the submitting thread until it is queued, then by the driver until `phase` is kDone;
// `status` may be read once kDone has been seen.
struct RequestState {
  enum class Phase : int { kIdle, kOpen, kRunning, kDone };  // kOpen: its group is not ended yet

  RequestId id = 0;
  UnitPtr unit;
  std::vector<TensorBuffers> buffers;  // one per tensor of the unit
  std::vector<CompletionCallback> callbacks;
  Nanos timeout = kNever;
  Nanos deadline = kNever;
  bool persistent = false;
  std::size_t tensors_left = 0;  // not yet executed
  Status status;
  std::atomic<Phase> phase{Phase::kIdle};

  [[nodiscard]] bool done() const { return phase.load(std::memory_order_acquire) == Phase::kDone; }
};
using RequestPtr = std::shared_ptr<RequestState>;  // the caller's handle and the engine share it

// Thread-safe. Ids are never used twice.
class HandleTable {
 public:
  RequestId reserve() { return next_.fetch_add(1, std::memory_order_relaxed); }
  void insert(RequestId id, RequestPtr request) {
    const std::lock_guard lock(mutex_);
    requests_[id] = std::move(request);
  }
  [[nodiscard]] RequestPtr find(RequestId id) const {
    const std::lock_guard lock(mutex_);
    const auto it = requests_.find(id);
    return it == requests_.end() ? nullptr : it->second;
  }
  bool erase(RequestId id) {
    const std::lock_guard lock(mutex_);
    return requests_.erase(id) > 0;
  }

 private:
  std::atomic<RequestId> next_{1};
  mutable std::mutex mutex_;
  std::unordered_map<RequestId, RequestPtr> requests_;
};

}  // namespace kolo::internal
