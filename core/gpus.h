// Gpus: what a context knows and holds of GPUs: the libraries, once device memory appears, kolo's
// launch thread, and the calls that concern a caller's own pointers and streams.
//
// Nothing is loaded, and no thread begun, before CUDA is in the process or a call asks for a
// device. Threads: any, but for stop(). Calls of CUDA on the caller's thread: the kind of a
// pointer, whether a stream is captured, the record of an event, and a stream's wait for one; none
// of them changes the thread's current device. The first use of a device blocks until kolo's thread
// has opened it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "base/status.h"
#include "ops/cuda/launch_thread.h"
#include "ops/cuda/runtime.h"
#include "ops/nccl/library.h"

namespace kolo::internal {

// As a submission's device: to be asked of CUDA; the host's. Any other number is a device.
inline constexpr std::int32_t kDeviceAuto = -1;
inline constexpr std::int32_t kDeviceHost = -2;

class Gpus {
 public:
  // `notify`: a task of the launch thread has moved.
  Gpus(Config config, std::function<void()> notify);
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;
  ~Gpus() {
    stop([] {}, kNever);
  }

  // Where a tensor lies: `asked`, or what CUDA says of the pointers (null ones say nothing): the
  // number of a device, or kHostMemory. INVALID_ARGUMENT: they lie in different places, or not
  // where it was said. UNSUPPORTED: a device was asked for, and there is no CUDA.
  Result<std::int32_t> place_of(std::int32_t asked, const void* input, const void* output);
  // That it is host memory, told without a call of CUDA.
  [[nodiscard]] bool is_on_host(std::int32_t asked) {
    return asked == kDeviceHost || (asked == kDeviceAuto && !presence_.is_cuda_in_process());
  }
  // An event behind what is queued on `stream`, a cudaStream_t of that device or its default.
  // INVALID_ARGUMENT: the stream is captured, or of another device.
  Result<cuda::EventRef> mark(std::int32_t device, void* stream);
  // What is queued on the stream from now on comes after the events. INVALID_ARGUMENT as before,
  // also where there are no events.
  Status await(void* stream, std::span<const cuda::EventRef> events);

  // Memory of a device, NCCL's own where it has that; RESOURCE, UNSUPPORTED.
  Result<void*> allocate(std::int32_t device, std::size_t bytes);
  // False: it is not allocate()'s.
  Result<bool> free(void* memory);

  // On the launch thread, with the device current: memory for an operation's result. RESOURCE.
  Result<void*> allocate_result(std::int32_t device, std::size_t bytes);
  // Frees it soon, when nothing that is queued on the device uses it; any thread, never blocks.
  void discard(void* memory);

  // The option cuda is off.
  [[nodiscard]] bool is_off() const { return config_.text("cuda") == "off"; }

  // For who launches: after place_of() has found a device.
  [[nodiscard]] cuda::LaunchThread& thread() { return *thread_; }
  [[nodiscard]] const cuda::Runtime& runtime() const { return *runtime_; }
  // NCCL, or why there is none.
  [[nodiscard]] const Result<std::unique_ptr<const nccl::Library>>& library();

  // As long as this lives: also for what is left behind.
  [[nodiscard]] const Clock& clock() const { return clock_; }

  // From now on calls end with `why` that wait for a launch thread that does not come back.
  void refuse(const Status& why, Nanos patience);
  // No call is running, or comes. `last`: on the launch thread, before the devices are closed.
  // False: the thread is left behind, see LaunchThread::stop(): this must never be destroyed.
  bool stop(const std::function<void()>& last, Nanos patience);

 private:
  Status load();
  [[nodiscard]] Result<std::int32_t> device_of(const void* pointer);
  Status check_capture(void* stream);
  struct Memory {
    std::int32_t device = 0;
    bool of_nccl = false;
  };
  Status make(std::int32_t device, std::size_t bytes, void*& memory);
  Status release(void* memory, const Memory& how);

  const Config config_;
  const SteadyClock clock_;
  std::function<void()> notify_;
  cuda::Presence presence_;
  std::mutex mutex_;
  bool is_loaded_ = false;
  Status no_cuda_;
  std::unique_ptr<const cuda::Runtime> runtime_;
  std::unique_ptr<cuda::LaunchThread> thread_;
  std::once_flag library_once_;
  Result<std::unique_ptr<const nccl::Library>> library_;
  std::map<void*, Memory> memory_;
};

}  // namespace kolo::internal
