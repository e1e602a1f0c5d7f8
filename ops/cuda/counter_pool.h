// CounterPool: numbers in pinned host memory to which kernels add, and which the host reads when
// the device is done: blocks of them that are used again, so that what repeats takes no memory.
//
// Threads: take() and clear() on the launch thread; give_back() on any.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "ops/cuda/handles.h"
#include "ops/cuda/runtime.h"

namespace kolo::internal::cuda {

class CounterPool {
 public:
  explicit CounterPool(const Runtime& runtime) : runtime_(runtime) {}
  CounterPool(const CounterPool&) = delete;
  CounterPool& operator=(const CounterPool&) = delete;

  // [count] zeros, of at least one. RESOURCE.
  Result<unsigned long long*> take(std::size_t count);
  // What take(count) gave; nothing on a device writes there any more.
  void give_back(unsigned long long* counters, std::size_t count);
  // All of the memory; nobody has any.
  void clear();

 private:
  struct Chunk {
    PinnedBuffer memory;
    std::vector<bool> used;  // by block
    [[nodiscard]] unsigned long long* begin() const {
      return reinterpret_cast<unsigned long long*>(memory.data());
    }
  };
  static unsigned long long* find_room(Chunk& chunk, std::size_t blocks);

  const Runtime& runtime_;
  std::mutex mutex_;
  std::deque<Chunk> chunks_;
};

}  // namespace kolo::internal::cuda
