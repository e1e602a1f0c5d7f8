#include "ops/cuda/copy_task.h"

#include <algorithm>
#include <string>
#include <utility>

namespace kolo::internal::cuda {

Status Staging::reserve(const Runtime& runtime, std::size_t bytes) {
  if (bytes <= bytes_) return Status::ok();
  release(runtime);
  void* memory = nullptr;
  const Error error = runtime.cudaHostAlloc(&memory, bytes, kHostAllocPortable);
  if (error == kMemoryAllocation) {
    return resource_error(
        "no " + std::to_string(bytes) +
        " bytes of pinned memory to stage a tensor: " + runtime.cudaGetErrorString(error) +
        ". Raise the limit of locked memory (ulimit -l), or use smaller tensors");
  }
  KOLO_RETURN_IF_ERROR(
      runtime.status_of(error, "cudaHostAlloc of " + std::to_string(bytes) + " bytes"));
  memory_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
  return Status::ok();
}

void Staging::release(const Runtime& runtime) {
  if (memory_ != nullptr) runtime.cudaFreeHost(std::exchange(memory_, nullptr));
  bytes_ = 0;
}

Result<EventRef> CopyTask::launch() {
  const Result<Device*> device = thread_->device(device_);
  if (!device) return device.status();
  const Runtime& runtime = thread_->runtime();
  if (before_) KOLO_RETURN_IF_ERROR(before_());
  KOLO_RETURN_IF_ERROR(staging_->reserve(runtime, std::max<std::size_t>(bytes_, 1)));
  Status status;
  for (Piece& piece : pieces_) {
    if (piece.ready) status = (*device)->await(std::exchange(piece.ready, {}));
    if (!status) break;
    if (piece.bytes == 0) continue;
    std::byte* const host = staging_->memory() + piece.offset;
    const bool to_host = way_ == Way::kToHost;
    const Error error = runtime.cudaMemcpyAsync(
        to_host ? host : piece.device, to_host ? piece.device : host, piece.bytes,
        to_host ? kCopyDeviceToHost : kCopyHostToDevice, (*device)->stream());
    if (error == kSuccess) continue;
    status = runtime.status_of(error, "cudaMemcpyAsync on device " + std::to_string(device_));
    break;
  }
  // What was queued before an error is waited for all the same.
  Result<EventRef> done = (*device)->record();
  failure_ = status;
  if (!status && !done) return status;
  return done;
}

}  // namespace kolo::internal::cuda
