// What kolo calls of the CUDA runtime (libcudart.so.12 and .13), in its own words: the few types,
// constants and prototypes, so that kolo builds where CUDA is not installed, and no symbol of it is
// linked. Checked against the real headers, wherever those are found, by tests/unit/gpu.
//
// Handles are opaque pointers; enumerations are plain integers of the same width.
#pragma once

#include <cstddef>

namespace kolo::internal::cuda {

using Error = int;
inline constexpr Error kSuccess = 0;
inline constexpr Error kInvalidValue = 1;
inline constexpr Error kMemoryAllocation = 2;
inline constexpr Error kInitializationError = 3;
inline constexpr Error kRuntimeUnloading = 4;     // the process is at its end
inline constexpr Error kInsufficientDriver = 35;  // also when there is no driver at all
inline constexpr Error kNoDevice = 100;
inline constexpr Error kInvalidDevice = 101;
inline constexpr Error kNoKernelImage = 209;
inline constexpr Error kInvalidHandle = 400;
inline constexpr Error kNotFound = 500;  // a name
inline constexpr Error kNotReady = 600;
inline constexpr Error kNotSupported = 801;
inline constexpr Error kCaptureUnsupported = 900;
inline constexpr Error kCaptureImplicit = 906;

// 1000 * major + 10 * minor, as the runtime says it.
inline constexpr int kOldestRuntime = 12000;

using StreamHandle = struct OpaqueStream*;  // null: the legacy default stream
using EventHandle = struct OpaqueEvent*;
using LibraryHandle = struct OpaqueLibrary*;
using KernelHandle = struct OpaqueKernel*;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostAllocPortable = 1;

using CopyKind = int;
inline constexpr CopyKind kCopyHostToHost = 0;
inline constexpr CopyKind kCopyHostToDevice = 1;
inline constexpr CopyKind kCopyDeviceToHost = 2;
inline constexpr CopyKind kCopyDeviceToDevice = 3;
inline constexpr CopyKind kCopyByAddress = 4;

using CaptureStatus = int;
inline constexpr CaptureStatus kCaptureNone = 0;
inline constexpr CaptureStatus kCaptureActive = 1;
inline constexpr CaptureStatus kCaptureInvalidated = 2;

using CaptureMode = int;  // of a thread: what its calls may do to others' captures
inline constexpr CaptureMode kCaptureModeRelaxed = 2;

using MemoryType = int;
inline constexpr MemoryType kMemoryUnregistered = 0;  // the host's own, unknown to CUDA
inline constexpr MemoryType kMemoryHost = 1;          // pinned
inline constexpr MemoryType kMemoryDevice = 2;
inline constexpr MemoryType kMemoryManaged = 3;

using DeviceAttribute = int;
inline constexpr DeviceAttribute kMultiprocessorCount = 16;
inline constexpr DeviceAttribute kUnifiedAddressing = 41;
inline constexpr DeviceAttribute kComputeCapabilityMajor = 75;
inline constexpr DeviceAttribute kComputeCapabilityMinor = 76;

// Room for what CUDA 13 writes; 12 writes what comes before `reserved`.
struct PointerAttributes {
  MemoryType type = kMemoryUnregistered;
  int device = -1;
  void* device_pointer = nullptr;
  void* host_pointer = nullptr;
  long reserved[8] = {};
};

struct Dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

// Every function that kolo calls, as (result, name, parameters). `required` ones are in 12.0
// already; `optional` ones came later, and are null where the library lacks them.
// clang-format off
#define KOLO_CUDA_FUNCTIONS(required, optional)                                                    \
  required(const char*, cudaGetErrorName, (Error error))                                           \
  required(const char*, cudaGetErrorString, (Error error))                                         \
  required(Error, cudaRuntimeGetVersion, (int* version))                                           \
  required(Error, cudaDriverGetVersion, (int* version))                                            \
  required(Error, cudaGetDeviceCount, (int* count))                                                \
  required(Error, cudaGetDevice, (int* device))                                                    \
  required(Error, cudaSetDevice, (int device))                                                     \
  required(Error, cudaDeviceGetAttribute, (int* value, DeviceAttribute attribute, int device))     \
  required(Error, cudaDeviceGetPCIBusId, (char* text, int text_bytes, int device))                 \
  required(Error, cudaDeviceGetStreamPriorityRange, (int* least, int* greatest))                   \
  required(Error, cudaPointerGetAttributes, (PointerAttributes* result, const void* pointer))      \
  required(Error, cudaStreamCreateWithPriority,                                                    \
           (StreamHandle* stream, unsigned flags, int priority))                                   \
  required(Error, cudaStreamDestroy, (StreamHandle stream))                                        \
  required(Error, cudaStreamWaitEvent, (StreamHandle stream, EventHandle event, unsigned flags))   \
  required(Error, cudaStreamSynchronize, (StreamHandle stream))                                    \
  required(Error, cudaStreamIsCapturing, (StreamHandle stream, CaptureStatus* status))             \
  required(Error, cudaEventCreateWithFlags, (EventHandle* event, unsigned flags))                  \
  required(Error, cudaEventRecord, (EventHandle event, StreamHandle stream))                       \
  required(Error, cudaEventQuery, (EventHandle event))                                             \
  required(Error, cudaEventSynchronize, (EventHandle event))                                       \
  required(Error, cudaEventDestroy, (EventHandle event))                                           \
  required(Error, cudaMalloc, (void** pointer, std::size_t bytes))                                 \
  required(Error, cudaFree, (void* pointer))                                                       \
  required(Error, cudaHostAlloc, (void** pointer, std::size_t bytes, unsigned flags))              \
  required(Error, cudaFreeHost, (void* pointer))                                                   \
  required(Error, cudaMemcpyAsync,                                                                 \
           (void* to, const void* from, std::size_t bytes, CopyKind kind, StreamHandle stream))    \
  required(Error, cudaMemsetAsync,                                                                 \
           (void* pointer, int value, std::size_t bytes, StreamHandle stream))                     \
  required(Error, cudaGetLastError, ())                                                            \
  optional(Error, cudaThreadExchangeStreamCaptureMode, (CaptureMode* mode))                        \
  optional(Error, cudaLibraryLoadData,                                                             \
           (LibraryHandle* library, const void* code, int* jit_options, void** jit_values,         \
            unsigned jit_count, int* options, void** values, unsigned count))                      \
  optional(Error, cudaLibraryUnload, (LibraryHandle library))                                      \
  optional(Error, cudaLibraryGetKernel,                                                            \
           (KernelHandle* kernel, LibraryHandle library, const char* name))                        \
  optional(Error, cudaLaunchKernel,                                                                \
           (const void* kernel, Dim3 grid, Dim3 block, void** arguments, std::size_t shared_bytes, \
            StreamHandle stream))
// clang-format on

// The functions by their own names; a plain value, shared by any threads once it is filled.
struct Functions {
#define KOLO_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  KOLO_CUDA_FUNCTIONS(KOLO_MEMBER, KOLO_MEMBER)
#undef KOLO_MEMBER
};

}  // namespace kolo::internal::cuda
