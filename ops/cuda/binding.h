// What the loaders of the CUDA runtime and of NCCL share. Pure, but for the look-up of a name.
#pragma once

#include <string>

#include "base/dynamic_library.h"
#include "base/options.h"
#include "base/status.h"

namespace kolo::internal::cuda {

// UNSUPPORTED if this build, or the option `cuda`, wants no GPUs; `library` begins the text.
[[nodiscard]] Status check_cuda_wanted(const Config& config, const char* library);

// Whether the library has the function.
template <typename Function>
[[nodiscard]] bool bind(const DynamicLibrary& library, const char* name, Function*& pointer) {
  pointer = library.find<Function>(name);
  return pointer != nullptr;
}

inline void append_name(std::string& names, const char* name) {
  names += (names.empty() ? "" : ", ") + std::string(name);
}

}  // namespace kolo::internal::cuda
