// Runtime: the CUDA runtime of this process, found when it is first needed; and Presence: whether
// there can be device memory in this process at all.
//
// Nothing here is linked: kolo works, and says why there is no CUDA, where none is installed. The
// library is never closed. A Runtime does not change after load(): any threads may share it. Each
// of its functions is what CUDA says of it, under CUDA's own name: runtime.cudaMalloc(...).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/dynamic_library.h"
#include "base/options.h"
#include "base/status.h"
#include "ops/cuda/abi.h"

namespace kolo::internal::cuda {

#ifndef KOLO_CUDA
#define KOLO_CUDA 1
#endif
// False if kolo was built with KOLO_WITH_CUDA=OFF: then nothing is ever found.
inline constexpr bool kIsBuilt = KOLO_CUDA != 0;

// Of the sonames that are known, newest first.
inline constexpr const char* kRuntimeNames[] = {"libcudart.so.13", "libcudart.so.12"};

class Runtime : public Functions {
 public:
  // The library of the option `cudart_path`; else the one that this process has loaded; else where
  // the system looks, and CUDA_HOME's. Asks nothing of the driver.
  // UNSUPPORTED (none found, too old, the option `cuda` is off), with the cure.
  static Result<std::unique_ptr<const Runtime>> load(const Config& config);

  // What load() would find, and no more: the process is as it was, also for a Presence.
  struct Found {
    std::string path;
    int version = 0;
  };
  static Result<Found> look(const Config& config);

  // Wakes the driver up, which takes a while the first time. At least 1; else UNSUPPORTED (no
  // driver, an old driver, no device), with the cure.
  [[nodiscard]] Result<int> count_devices() const;
  // OK for kSuccess; else what CUDA says: RESOURCE for memory, INVALID_ARGUMENT and UNSUPPORTED as
  // CUDA means them, CUDA_ERROR for the rest. `what` was tried, e.g. "cudaMalloc of 12 bytes".
  [[nodiscard]] Status status_of(Error error, std::string_view what) const;

  [[nodiscard]] const std::string& path() const { return path_; }  // of the library's file
  [[nodiscard]] int version() const { return version_; }           // 13000 is 13.0
  // What the driver can do; 0 if there is none.
  [[nodiscard]] int driver_version() const;

 private:
  Runtime() = default;
  static Result<std::unique_ptr<const Runtime>> from(const DynamicLibrary& library);

  std::string path_;
  int version_ = 0;
};

// "13.0" for 13000.
[[nodiscard]] std::string version_text(int version);

// Any thread. Cheap: a look at how many objects the process has loaded, until CUDA is among them;
// then a load of one word.
class Presence {
 public:
  explicit Presence(const Config& config);
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

  // Whether device pointers can exist in this process: a CUDA runtime or driver is loaded, or the
  // option `cudart_path` names one. Never falls back to false.
  [[nodiscard]] bool is_cuda_in_process() {
    const State state = state_.load(std::memory_order_relaxed);
    return state == State::kUnknown ? look() : state == State::kPresent;
  }

 private:
  enum class State { kUnknown, kPresent, kNever };
  bool look();

  std::atomic<State> state_{State::kUnknown};
  std::atomic<unsigned long long> objects_loaded_{0};  // when CUDA was last looked for
};

}  // namespace kolo::internal::cuda
