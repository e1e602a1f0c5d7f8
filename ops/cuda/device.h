// Device: what kolo holds of one GPU: a stream of its own, of high priority, events, and a
// finisher.
//
// Threads: the launch thread, but for events().take(). The destructor waits for the stream.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "ops/cuda/abi.h"
#include "ops/cuda/event_pool.h"
#include "ops/cuda/finisher.h"

namespace kolo::internal::cuda {

class Device {
 public:
  // Makes the device current on this thread. CUDA_ERROR, RESOURCE.
  static Result<std::unique_ptr<Device>> open(const Functions& functions, int number,
                                              std::function<void()> notify);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { close(); }
  // Waits for the stream, and gives back all but the pool, whose events may be held by others.
  void close();
  [[nodiscard]] std::unique_ptr<EventPool> take_events() { return std::move(events_); }

  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] const std::string& bus_id() const { return bus_id_; }  // "0000:3b:00.0"
  [[nodiscard]] StreamHandle stream() const { return stream_; }
  [[nodiscard]] EventPool& events() { return *events_; }
  [[nodiscard]] Finisher& finisher() { return *finisher_; }

  void make_current() { functions_.cudaSetDevice(number_); }
  // Work that is queued from here on comes after what the event stands behind.
  Status await(const EventRef& event);
  // An event behind all that is queued.
  Result<EventRef> record();

 private:
  Device(const Functions& functions, int number)
      : functions_(functions),
        number_(number),
        events_(std::make_unique<EventPool>(functions, number)) {}
  Status check(Error error, const char* call) const;

  const Functions& functions_;
  int number_;
  std::string bus_id_;
  StreamHandle stream_ = nullptr;
  std::unique_ptr<EventPool> events_;
  std::unique_ptr<Finisher> finisher_;
};

}  // namespace kolo::internal::cuda
