// The control panel of the fake GPUs, as the process has them loaded; and ranks that are threads,
// with steps in common. For tests that run on the fakes only.
//
// Threads: any. Ownership: the libraries are never closed.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <cstddef>
#include <string>

#include "tests/fakegpu/fakegpu.h"
#include "tests/gpu/gpu.h"
#include "tests/unit/training/ranks.h"

namespace gpu_test {

using training_test::on_ranks;

// What fakegpu.h declares, and what of CUDA only callers use, found at run time.
struct Fakes {
  decltype(&::fakegpu_census) census = nullptr;
  decltype(&::fakegpu_calls) calls = nullptr;
  decltype(&::fakegpu_calls_of_this_thread) calls_of_this_thread = nullptr;
  decltype(&::fakegpu_host_waits) host_waits = nullptr;
  decltype(&::fakegpu_misuses) misuses = nullptr;
  decltype(&::fakegpu_misuse_text) misuse_text = nullptr;
  decltype(&::fakegpu_set_faults) set_faults = nullptr;
  decltype(&::fakegpu_creation_at) creation_at = nullptr;
  decltype(&::fakegpu_forget_creations) forget_creations = nullptr;
  decltype(&::fakegpu_peek) peek = nullptr;
  decltype(&::fakegpu_poke) poke = nullptr;
  decltype(&::fakegpu_hold) hold = nullptr;
  decltype(&::fakegpu_release) release = nullptr;
  cuda::Error (*begin_capture)(cuda::StreamHandle, int mode) = nullptr;
  cuda::Error (*end_capture)(cuda::StreamHandle, void** graph) = nullptr;
  cuda::Error (*destroy_graph)(void* graph) = nullptr;
};

// Fails the program where they are not loaded by KOLO_CUDART_PATH.
const Fakes& fakes();

inline void must(kolo_status status) { EXPECT_EQ(status, KOLO_OK) << kolo_last_error(); }

// An all-reduce of floats in place, by name.
kolo_status sum(kolo::Context& context, const std::string& name, const DeviceArray<float>& data,
                cuda::StreamHandle stream, kolo_request* request, std::int32_t pset = 0);

}  // namespace gpu_test
