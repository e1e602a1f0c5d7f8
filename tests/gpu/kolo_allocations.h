// Counts the allocations that libkolo makes, and not those of the program or the fakes, which share
// its threads. Any thread.
#pragma once

#include <cstddef>

namespace gpu_test {

// From now on; the first call finds the library.
void count_allocations_of_kolo();
[[nodiscard]] std::size_t allocations_of_kolo();

}  // namespace gpu_test
