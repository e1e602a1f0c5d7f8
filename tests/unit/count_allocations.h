// Counts every allocation of the program that links count_allocations.cc. Any thread.
#pragma once

#include <cstddef>

namespace kolo::internal {

[[nodiscard]] std::size_t allocations_so_far();

}  // namespace kolo::internal
