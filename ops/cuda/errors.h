// What an error of the CUDA runtime means to kolo's caller. Pure but for the names it asks for.
#pragma once

#include <string>

#include "base/status.h"
#include "ops/cuda/abi.h"

namespace kolo::internal::cuda {

// RESOURCE for want of memory, else CUDA_ERROR: what was called, where, and CUDA's own words.
[[nodiscard]] inline Status status_of(const Functions& functions, Error error, const char* call,
                                      int device) {
  if (error == kSuccess) return Status::ok();
  const std::string text = std::string(call) + " on CUDA device " + std::to_string(device) + ": " +
                           functions.cudaGetErrorString(error) + " (" +
                           functions.cudaGetErrorName(error) + ")";
  if (error == kMemoryAllocation) {
    return resource_error(text + ". Free memory of the device, or use smaller tensors");
  }
  return {StatusCode::kCudaError, text};
}

}  // namespace kolo::internal::cuda
