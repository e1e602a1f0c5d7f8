#include "ops/cuda/handles.h"

#include <string>

namespace kolo::internal::cuda {

DeviceGuard::DeviceGuard(const Runtime& runtime, int device) : runtime_(runtime) {
  int current = -1;
  status_ = runtime.status_of(runtime.cudaGetDevice(&current), "cudaGetDevice");
  if (!status_ || current == device) return;
  status_ = runtime.status_of(runtime.cudaSetDevice(device),
                              "cudaSetDevice to " + std::to_string(device));
  if (status_) previous_ = current;
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) static_cast<void>(runtime_.cudaSetDevice(previous_));
}

Result<Stream> Stream::create(const Runtime& runtime, Priority priority) {
  int least = 0;
  int greatest = 0;
  KOLO_RETURN_IF_ERROR(
      runtime.status_of(runtime.cudaDeviceGetStreamPriorityRange(&least, &greatest),
                        "cudaDeviceGetStreamPriorityRange"));
  StreamHandle handle = nullptr;
  const int number = priority == Priority::kHighest ? greatest : least;
  KOLO_RETURN_IF_ERROR(
      runtime.status_of(runtime.cudaStreamCreateWithPriority(&handle, kStreamNonBlocking, number),
                        "cudaStreamCreateWithPriority"));
  return Stream(runtime, handle);
}

Result<Event> Event::create(const Runtime& runtime) {
  EventHandle handle = nullptr;
  KOLO_RETURN_IF_ERROR(runtime.status_of(
      runtime.cudaEventCreateWithFlags(&handle, kEventDisableTiming | kEventBlockingSync),
      "cudaEventCreateWithFlags"));
  return Event(runtime, handle);
}

Result<PinnedBuffer> PinnedBuffer::create(const Runtime& runtime, std::size_t bytes) {
  void* memory = nullptr;
  KOLO_RETURN_IF_ERROR(runtime.status_of(runtime.cudaHostAlloc(&memory, bytes, kHostAllocPortable),
                                         "cudaHostAlloc of " + std::to_string(bytes) + " bytes"));
  return PinnedBuffer(runtime, memory, bytes);
}

Result<DeviceBuffer> DeviceBuffer::create(const Runtime& runtime, std::size_t bytes) {
  void* memory = nullptr;
  KOLO_RETURN_IF_ERROR(runtime.status_of(runtime.cudaMalloc(&memory, bytes),
                                         "cudaMalloc of " + std::to_string(bytes) + " bytes"));
  return DeviceBuffer(runtime, memory, bytes);
}

}  // namespace kolo::internal::cuda
