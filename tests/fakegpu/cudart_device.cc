// The fake runtime's functions about versions, errors, devices, kernels and libraries; the control
// panel.
#include <cstdio>
#include <cstring>

#include "tests/fakegpu/machine.h"
#include "tests/fakegpu/runtime_abi.h"

namespace fakegpu {
namespace {

struct ErrorRow {
  int number;
  const char* name;
  const char* text;
};
constexpr ErrorRow kErrors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {4, "cudaErrorCudartUnloading", "driver shutting down"},
    {21, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for the runtime"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {200, "cudaErrorInvalidKernelImage", "device kernel image is invalid"},
    {209, "cudaErrorNoKernelImageForDevice", "no kernel image is available for the device"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {500, "cudaErrorSymbolNotFound", "named symbol not found"},
    {600, "cudaErrorNotReady", "device not ready"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {801, "cudaErrorNotSupported", "operation not supported"},
    {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "cudaErrorStreamCaptureInvalidated", "operation failed due to an earlier capture error"},
    {903, "cudaErrorStreamCaptureUnmatched", "capture was not initiated in this stream"},
    {905, "cudaErrorStreamCaptureIsolation", "dependency on uncaptured work in another stream"},
    {906, "cudaErrorStreamCaptureImplicit", "would make the legacy stream depend on a capture"},
    {907, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in capture"},
};
constexpr ErrorRow kUnknown = {kUnknownError, "cudaErrorUnknown", "unknown error"};

const ErrorRow& row_of(int number) {
  for (const ErrorRow& row : kErrors) {
    if (row.number == number) return row;
  }
  return kUnknown;
}

}  // namespace
}  // namespace fakegpu

namespace kolo::internal::cuda {

using fakegpu::call;
using fakegpu::Machine;
using fakegpu::machine;
using fakegpu::Purpose;

extern "C" {

const char* cudaGetErrorName(Error error) { return fakegpu::row_of(error).name; }
const char* cudaGetErrorString(Error error) { return fakegpu::row_of(error).text; }

Error cudaRuntimeGetVersion(int* version) {
  machine().census.count_call(__func__);
  *version = machine().settings.runtime_version;
  return kSuccess;
}

Error cudaDriverGetVersion(int* version) {
  machine().census.count_call(__func__);
  const fakegpu::Settings& settings = machine().settings;
  *version = settings.has_driver ? settings.runtime_version : 0;
  return kSuccess;
}

Error cudaGetDeviceCount(int* count) {
  if (count != nullptr) *count = 0;
  return call(__func__, [count](Machine& m) {
    *count = m.device_count();
    return kSuccess;
  });
}

Error cudaGetDevice(int* device) {
  return call(__func__, [device](Machine&) {
    *device = Machine::thread().device;
    return kSuccess;
  });
}

Error cudaSetDevice(int device) {
  return call(__func__, [device](Machine& m) {
    if (m.device(device) == nullptr) return kInvalidDevice;
    Machine::thread().device = device;
    return kSuccess;
  });
}

Error cudaDeviceGetAttribute(int* value, DeviceAttribute attribute, int device) {
  return call(__func__, [=](Machine& m) {
    if (m.device(device) == nullptr) return kInvalidDevice;
    switch (attribute) {
      case 1: *value = 1024; break;  // threads per block
      case 10: *value = 32; break;   // warp
      case kMultiprocessorCount: *value = 4; break;
      case kUnifiedAddressing: *value = 1; break;
      case kComputeCapabilityMajor: *value = 9; break;
      case kComputeCapabilityMinor: *value = 0; break;
      default: *value = 0; break;
    }
    return kSuccess;
  });
}

Error cudaDeviceGetPCIBusId(char* text, int text_bytes, int device) {
  return call(__func__, [=](Machine& m) {
    const fakegpu::Device* found = m.device(device);
    if (found == nullptr) return kInvalidDevice;
    if (text == nullptr || text_bytes <= static_cast<int>(found->bus_id().size())) {
      return kInvalidValue;
    }
    std::memcpy(text, found->bus_id().c_str(), found->bus_id().size() + 1);
    return kSuccess;
  });
}

Error cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call(__func__, [=](Machine&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return kSuccess;
  });
}

Error cudaDeviceSynchronize() {
  return call(__func__, [](Machine& m) {
    if (const Error error = m.forbidden_by_capture()) return error;
    m.census.count_host_wait();
    m.current_device().synchronize();
    return m.state();
  });
}

Error cudaGetLastError() {
  Machine& m = machine();
  m.census.count_call(__func__);
  const Error state = m.state();
  const Error error = state != kSuccess ? state : Machine::thread().last_error;
  Machine::thread().last_error = kSuccess;
  return error;
}

Error cudaPeekAtLastError() {
  const Error state = machine().state();
  return state != kSuccess ? state : Machine::thread().last_error;
}

Error cudaLibraryLoadData(LibraryHandle* library, const void* code, int*, void**, unsigned, int*,
                          void**, unsigned) {
  return call(__func__, [=](Machine& m) {
    if (library == nullptr || code == nullptr) return kInvalidValue;
    *library = static_cast<LibraryHandle>(m.libraries.add(std::make_shared<fakegpu::Library>()));
    return kSuccess;
  });
}

Error cudaLibraryUnload(LibraryHandle library) {
  return call(
      __func__,
      [=](Machine& m) {
        return m.libraries.take(library) != nullptr ? kSuccess : fakegpu::kInvalidResourceHandle;
      },
      Purpose::kCleanUp);
}

Error cudaLibraryGetKernel(KernelHandle* kernel, LibraryHandle library, const char* name) {
  return call(__func__, [=](Machine& m) {
    const std::shared_ptr<fakegpu::Library> found = m.libraries.find(library);
    if (found == nullptr) return fakegpu::kInvalidResourceHandle;
    const fakegpu::Kernel* row = fakegpu::find_kernel(name);
    if (row == nullptr) return kNotFound;
    *kernel = static_cast<KernelHandle>(
        m.kernels.add(std::make_shared<fakegpu::LoadedKernel>(row, found)));
    return kSuccess;
  });
}

Error cudaLaunchKernel(const void* kernel, Dim3 grid, Dim3 block, void** arguments, std::size_t,
                       StreamHandle stream) {
  return call(__func__, [=](Machine& m) {
    const std::shared_ptr<fakegpu::LoadedKernel> found = m.kernels.find(kernel);
    if (found == nullptr || found->library.expired()) {
      m.census.misuse("a kernel was launched that is of no loaded library");
      return fakegpu::kInvalidResourceHandle;
    }
    if (grid.x * grid.y * grid.z == 0 || block.x * block.y * block.z == 0 ||
        block.x * block.y * block.z > 1024) {
      return 9;  // cudaErrorInvalidConfiguration
    }
    return m.submit("launch", m.find_stream(stream), found->kernel->bind({grid, block}, arguments));
  });
}

}  // extern "C"
}  // namespace kolo::internal::cuda

long fakegpu_census(fakegpu_counts* counts) { return fakegpu::machine().count_handles(counts); }

long fakegpu_calls(const char* function) { return fakegpu::machine().census.calls(function); }

long fakegpu_calls_of_this_thread(const char* function) {
  return fakegpu::machine().census.calls_of_this_thread(function);
}

long fakegpu_host_waits(long thread_id) { return fakegpu::machine().census.host_waits(thread_id); }

long fakegpu_misuses() { return fakegpu::machine().census.misuses(); }

const char* fakegpu_misuse_text(long index) { return fakegpu::machine().census.misuse_text(index); }

void fakegpu_forgive_misuses() { fakegpu::machine().census.forgive(); }

int fakegpu_creation_at(long index, fakegpu_creation* creation) {
  return fakegpu::machine().creations.get(index, creation) ? 0 : 1;
}

void fakegpu_forget_creations() { fakegpu::machine().creations.forget(); }

int fakegpu_set_faults(const char* text) { return fakegpu::machine().faults.set(text) ? 0 : 1; }

int fakegpu_peek(const void* device_pointer, void* host, size_t bytes) {
  fakegpu::Access access(fakegpu::machine().memory, 0);
  const std::byte* inside = access.open(device_pointer, bytes);
  if (inside == nullptr) return 1;
  if (bytes != 0) std::memcpy(host, inside, bytes);
  return 0;
}

int fakegpu_poke(void* device_pointer, const void* host, size_t bytes) {
  fakegpu::Access access(fakegpu::machine().memory, 0);
  std::byte* inside = access.open(device_pointer, bytes);
  if (inside == nullptr) return 1;
  if (bytes != 0) std::memcpy(inside, host, bytes);
  return 0;
}

int fakegpu_hold(void* stream) {
  const fakegpu::StreamPointer found =
      fakegpu::machine().find_stream(static_cast<kolo::internal::cuda::StreamHandle>(stream));
  if (found == nullptr) return fakegpu::kInvalidResourceHandle;
  found->push_gate();
  return 0;
}

int fakegpu_release(void* stream) {
  const fakegpu::StreamPointer found =
      fakegpu::machine().find_stream(static_cast<kolo::internal::cuda::StreamHandle>(stream));
  if (found == nullptr) return fakegpu::kInvalidResourceHandle;
  return found->open_gate() ? 0 : fakegpu::kInvalidResourceHandle;
}
