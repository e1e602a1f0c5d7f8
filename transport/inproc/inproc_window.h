// Windows between threads of one process: plain memory and real bells. For tests, and for ranks
// that are threads.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transport/window.h"

namespace kolo::internal {

// One window per rank over the same memory, which lives as long as any of them.
Result<std::vector<std::unique_ptr<Window>>> make_inproc_windows(int size, std::size_t bytes);

}  // namespace kolo::internal
