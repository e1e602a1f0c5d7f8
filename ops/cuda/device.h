// Device: what kolo holds of one GPU: a stream of its own, of high priority, events, a finisher,
// its kernels where there are any, counters for them, and the fusion buffer, through which fused
// tensors travel.
//
// Threads: the launch thread, but for what events() and counters() say themselves. The destructor
// waits for the stream.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ops/cuda/abi.h"
#include "ops/cuda/counter_pool.h"
#include "ops/cuda/event_pool.h"
#include "ops/cuda/finisher.h"
#include "ops/cuda/handles.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/runtime.h"

namespace kolo::internal::cuda {

class Device {
 public:
  // Makes the device current on this thread. CUDA_ERROR, RESOURCE.
  static Result<std::unique_ptr<Device>> open(const Runtime& runtime, int number,
                                              std::function<void()> notify);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { close(); }
  // Waits for the stream, and gives back all but the pool, whose events may be held by others.
  void close();
  [[nodiscard]] std::unique_ptr<EventPool> take_events() { return std::move(events_); }

  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] const std::string& bus_id() const { return bus_id_; }  // "0000:3b:00.0"
  [[nodiscard]] StreamHandle stream() const { return stream_.get(); }
  [[nodiscard]] EventPool& events() { return *events_; }
  [[nodiscard]] Finisher& finisher() { return *finisher_; }
  [[nodiscard]] const Kernels* kernels() const { return kernels_.get(); }  // null: there are none

  [[nodiscard]] CounterPool& counters() { return counters_; }

  // At least `bytes` of device memory, for work on the stream: what is queued there later may use
  // the same. One that has become too small is kept until close(), since freeing it would wait.
  Result<std::byte*> fusion_buffer(std::size_t bytes);

  void make_current() { runtime_.cudaSetDevice(number_); }
  // Work that is queued from here on comes after what the event stands behind.
  Status await(const EventRef& event);
  // An event behind all that is queued.
  Result<EventRef> record();
  // True once after a record() that failed: what is queued is to be waited for some other way.
  bool take_unrecorded() { return std::exchange(unrecorded_, false); }

 private:
  Device(const Runtime& runtime, int number)
      : runtime_(runtime),
        number_(number),
        events_(std::make_unique<EventPool>(runtime, number)),
        counters_(runtime) {}
  Status check(Error error, const char* call) const;

  const Runtime& runtime_;
  int number_;
  std::string bus_id_;
  Stream stream_;
  bool unrecorded_ = false;
  std::unique_ptr<EventPool> events_;
  CounterPool counters_;
  std::unique_ptr<Finisher> finisher_;
  std::unique_ptr<const Kernels> kernels_;
  std::vector<DeviceBuffer> fusion_buffers_;  // the last one is in use
};

}  // namespace kolo::internal::cuda
