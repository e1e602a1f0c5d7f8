// The functions of the fake runtime, with C linkage: those that kolo calls, as its own table of
// them declares them, and those that programs around it call.
#pragma once

#include "ops/cuda/abi.h"

namespace kolo::internal::cuda {

using GraphHandle = struct OpaqueGraph*;
using HostFunction = void (*)(void*);
using CaptureMode = int;

extern "C" {
#define FAKEGPU_DECLARE(result, name, parameters) result name parameters;
KOLO_CUDA_FUNCTIONS(FAKEGPU_DECLARE, FAKEGPU_DECLARE)
#undef FAKEGPU_DECLARE

Error cudaPeekAtLastError();
Error cudaStreamCreate(StreamHandle* stream);
Error cudaStreamCreateWithFlags(StreamHandle* stream, unsigned flags);
Error cudaStreamQuery(StreamHandle stream);
Error cudaStreamGetDevice(StreamHandle stream, int* device);
Error cudaStreamBeginCapture(StreamHandle stream, CaptureMode mode);
Error cudaStreamEndCapture(StreamHandle stream, GraphHandle* graph);
Error cudaThreadExchangeStreamCaptureMode(CaptureMode* mode);
Error cudaGraphDestroy(GraphHandle graph);
Error cudaDeviceSynchronize();
Error cudaEventCreate(EventHandle* event);
Error cudaEventElapsedTime(float* milliseconds, EventHandle from, EventHandle to);
Error cudaMallocHost(void** pointer, std::size_t bytes);
Error cudaMemcpy(void* to, const void* from, std::size_t bytes, CopyKind kind);
Error cudaMemset(void* pointer, int value, std::size_t bytes);
Error cudaMemGetInfo(std::size_t* free, std::size_t* total);
Error cudaLaunchHostFunc(StreamHandle stream, HostFunction function, void* user);
}

}  // namespace kolo::internal::cuda
