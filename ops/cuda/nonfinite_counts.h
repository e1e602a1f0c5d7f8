// NonfiniteCounts: how many values of an operation's results are not finite, counted on the device
// behind the operation, and read when that is done.
//
//   1. begin(), then add() of each tensor that is counted: by who unpacks it, or where it lies
//   2. take() gets them counters; kernels add to those
//   3. read(), when the device is past the kernels
//
// Threads: 1 and 2 on the launch thread, 3 on the finisher, of() after that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "ops/cuda/counter_pool.h"
#include "ops/cuda/kernels.h"

namespace kolo::internal::cuda {

class NonfiniteCounts {
 public:
  NonfiniteCounts() = default;
  NonfiniteCounts(const NonfiniteCounts&) = delete;
  NonfiniteCounts& operator=(const NonfiniteCounts&) = delete;

  // Forgets the last operation; nothing is known of the tensors of this one.
  void begin(std::size_t tensors);
  // `tensor` has the next counter.
  void add(std::size_t tensor) { counted_.push_back(tensor); }
  // The same, counted by a kernel of its own. Those of one type come together.
  void add_in_place(std::size_t tensor, void* memory, std::size_t count, DataType dtype);
  // Of a type that has nothing to be counted.
  void set_none(std::size_t tensor) { found_[tensor] = 0; }
  // Where there is no memory for counters, nothing is counted.
  void take(CounterPool& pool);
  // By the order of add(); null: nothing is counted.
  [[nodiscard]] unsigned long long* counters() const { return counters_; }
  // Launches the kernels of those in place.
  [[nodiscard]] Status count(const Kernels& kernels, StreamHandle stream);
  void read();
  // -1: nobody has counted.
  [[nodiscard]] std::int64_t of(std::size_t tensor) const { return found_[tensor]; }

 private:
  struct InPlace {
    std::size_t first = 0;  // counter
    DataType dtype = DataType::kFloat32;
    std::vector<PlacedTensor> tensors;
  };
  void give_back();

  std::vector<std::int64_t> found_;   // by tensor
  std::vector<std::size_t> counted_;  // tensors, by counter
  std::vector<InPlace> in_place_;     // by type; the first in_place_count_
  std::size_t in_place_count_ = 0;
  CounterPool* pool_ = nullptr;
  unsigned long long* counters_ = nullptr;
};

}  // namespace kolo::internal::cuda
