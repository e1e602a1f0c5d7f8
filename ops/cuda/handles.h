// One owner for each thing that CUDA hands out: Stream, Event, PinnedBuffer, DeviceBuffer; and the
// current device of a thread (DeviceGuard).
//
// Owners can be moved, not copied, and give back what they own when they go; nothing may still run
// that uses it. They belong to one thread at a time. The Runtime outlives them.
// What fails at giving back is not told: by then the process is ending, or the device is broken,
// which the next call says.
#pragma once

#include <cstddef>
#include <utility>

#include "base/status.h"
#include "ops/cuda/runtime.h"

namespace kolo::internal::cuda {

// Makes `device` the current device of this thread, and what it was before again when it goes.
// Costs a context on the device that was current, if that had none yet: not for callers' threads,
// unless there is no other way.
class DeviceGuard {
 public:
  DeviceGuard(const Runtime& runtime, int device);
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard();

  [[nodiscard]] const Status& status() const { return status_; }  // whether it could be done

 private:
  const Runtime& runtime_;
  int previous_ = -1;  // none to go back to
  Status status_;
};

// A handle, and the function by which it is given back.
template <typename Handle, Error (*Functions::*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(const Runtime& runtime, Handle handle) : runtime_(&runtime), handle_(handle) {}
  Owned(Owned&& other) noexcept
      : runtime_(other.runtime_), handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      runtime_ = other.runtime_;
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { reset(); }

  [[nodiscard]] Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }
  void reset() {
    if (handle_ != nullptr) {
      static_cast<void>((runtime_->*kDestroy)(std::exchange(handle_, nullptr)));
    }
  }
  // Gives up the handle without giving it back: where that would wait for a device that is stuck.
  Handle forsake() { return std::exchange(handle_, nullptr); }

 private:
  const Runtime* runtime_ = nullptr;
  Handle handle_ = nullptr;
};

// Of the current device; does not wait for the default stream.
class Stream : public Owned<StreamHandle, &Functions::cudaStreamDestroy> {
 public:
  enum class Priority { kNormal, kHighest };
  using Owned::Owned;
  static Result<Stream> create(const Runtime& runtime, Priority priority = Priority::kNormal);
};

// Of the current device; without a time, and a host that waits for it sleeps.
class Event : public Owned<EventHandle, &Functions::cudaEventDestroy> {
 public:
  using Owned::Owned;
  static Result<Event> create(const Runtime& runtime);
};

// Host memory that devices reach by themselves, from any of them.
class PinnedBuffer : public Owned<void*, &Functions::cudaFreeHost> {
 public:
  PinnedBuffer() = default;
  static Result<PinnedBuffer> create(const Runtime& runtime, std::size_t bytes);
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(get()); }
  [[nodiscard]] std::size_t bytes() const { return get() == nullptr ? 0 : bytes_; }

 private:
  PinnedBuffer(const Runtime& runtime, void* memory, std::size_t bytes)
      : Owned(runtime, memory), bytes_(bytes) {}
  std::size_t bytes_ = 0;
};

// Memory of the current device. Freeing it waits for all that runs there.
class DeviceBuffer : public Owned<void*, &Functions::cudaFree> {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> create(const Runtime& runtime, std::size_t bytes);
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(get()); }
  [[nodiscard]] std::size_t bytes() const { return get() == nullptr ? 0 : bytes_; }

 private:
  DeviceBuffer(const Runtime& runtime, void* memory, std::size_t bytes)
      : Owned(runtime, memory), bytes_(bytes) {}
  std::size_t bytes_ = 0;
};

}  // namespace kolo::internal::cuda
