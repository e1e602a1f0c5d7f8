// Kernels by name: what cudaLibraryGetKernel() of the fake runtime finds. A kernel is bound at its
// launch, when its arguments are copied, and run later on its stream's thread.
//
// Threads: any; the table does not change after the library is loaded. Ownership: static.
#pragma once

#include <functional>
#include <string_view>

#include "ops/cuda/abi.h"
#include "tests/fakegpu/memory.h"

namespace fakegpu {

struct LaunchShape {
  kolo::internal::cuda::Dim3 grid;
  kolo::internal::cuda::Dim3 block;
};

struct Kernel {
  std::string_view name;
  // Copies what `arguments` point to. The result runs all of the grid; device pointers must go
  // through Access::open(), which checks their bounds.
  std::function<void(Access&)> (*bind)(const LaunchShape& shape, void** arguments);
};

// Null when there is none of that name.
const Kernel* find_kernel(std::string_view name);

}  // namespace fakegpu
