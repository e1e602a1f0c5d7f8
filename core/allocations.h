// Allocations: memory that kolo_alloc has given out: from the arena that the ranks of the host
// share, or from the heap where there is none. Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <new>

#include "base/status.h"
#include "ops/reduce_kernels.h"
#include "transport/arena.h"

namespace kolo::internal {

class Allocations {
 public:
  explicit Allocations(Arena* arena) : arena_(arena) {}  // may be null; outlives this

  Result<void*> allocate(std::size_t bytes) {
    if (arena_ != nullptr) return arena_->allocate(bytes);
    try {
      AlignedBytes memory = allocate_aligned(bytes == 0 ? 1 : bytes);
      void* const address = memory.get();
      const std::lock_guard lock(mutex_);
      heap_[address] = std::move(memory);
      return address;
    } catch (const std::bad_alloc&) {
      return resource_error("kolo_alloc: no memory for " + std::to_string(bytes) + " bytes");
    }
  }

  Status free(void* memory) {
    if (arena_ != nullptr) return arena_->free(memory);
    const std::lock_guard lock(mutex_);
    if (heap_.erase(memory) > 0) return Status::ok();
    return invalid_argument("kolo_free: this memory is not kolo_alloc's, or was freed before");
  }

 private:
  Arena* arena_;
  std::mutex mutex_;
  std::map<void*, AlignedBytes> heap_;
};

}  // namespace kolo::internal
