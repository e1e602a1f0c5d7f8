// The communicators that a process has made, in the order in which each of its threads began them.
//
// Threads: any. Ownership: owns its list.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "tests/fakegpu/fakegpu.h"

namespace fakegpu {

class Creations {
 public:
  // By the calling thread, on its current device. `id`: the unique id's bytes.
  void add(const char* id, std::size_t bytes, int size, int rank);
  // False: there is none of that number.
  bool get(long index, fakegpu_creation* creation);
  void forget();

 private:
  std::mutex mutex_;
  std::vector<fakegpu_creation> all_;
};

}  // namespace fakegpu
