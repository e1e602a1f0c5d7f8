// The machine that the fake libraries pretend: devices, memory, handles, plan of faults, census.
// One per process, made at the first call, never taken down: stream threads work for it until the
// process ends.
//
// Threads: any. Ownership: owns everything below it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda/abi.h"
#include "tests/fakegpu/census.h"
#include "tests/fakegpu/creations.h"
#include "tests/fakegpu/device.h"
#include "tests/fakegpu/event.h"
#include "tests/fakegpu/fakegpu.h"
#include "tests/fakegpu/faults.h"
#include "tests/fakegpu/handles.h"
#include "tests/fakegpu/kernels.h"
#include "tests/fakegpu/memory.h"
#include "tests/fakegpu/settings.h"

namespace fakegpu {

namespace cuda = kolo::internal::cuda;

// CUDA's numbers that kolo does not name.
inline constexpr int kInvalidCopyDirection = 21;
inline constexpr int kInvalidResourceHandle = 400;
inline constexpr int kIllegalAddress = 700;
inline constexpr int kLaunchFailure = 719;
inline constexpr int kCaptureInvalid = 901;
inline constexpr int kCaptureUnmatched = 903;
inline constexpr int kCaptureIsolation = 905;
inline constexpr int kCapturedEvent = 907;
inline constexpr int kUnknownError = 999;
inline constexpr int kCaptureModeGlobal = 0;
inline constexpr int kCaptureModeThreadLocal = 1;
inline constexpr int kCaptureModeRelaxed = 2;

struct Library {};
struct Graph {};
struct LoadedKernel {
  const Kernel* kernel = nullptr;
  std::weak_ptr<Library> library;
};

// What belongs to one thread of the program.
struct ThreadState {
  int device = 0;
  int last_error = 0;
  int capture_mode = kCaptureModeGlobal;  // how its calls see captures
  int captures = 0;                       // begun by it, not relaxed, not ended
  std::vector<StreamPointer> default_streams;

  ~ThreadState();
};

class Machine {
 public:
  Machine();

  const Settings settings;
  Census census;
  Faults faults;
  Memory memory;
  HandleTable<Stream> streams{0x51};
  HandleTable<Event> events{0x52};
  HandleTable<Library> libraries{0x53};
  HandleTable<LoadedKernel> kernels{0x54};
  HandleTable<Graph> graphs{0x55};
  std::atomic<int> global_captures{0};
  // Kept by the fake NCCL.
  std::atomic<long> communicators{0};
  std::atomic<long> registrations{0};
  std::atomic<long> reduction_ops{0};
  Creations creations;

  static ThreadState& thread();
  int device_count() const { return static_cast<int>(devices_.size()); }
  // Null: no such device.
  Device* device(int number);
  Device& current_device() { return *devices_[static_cast<std::size_t>(thread().device)]; }

  // 0 when calls may proceed: there is a driver, a device, and none is broken.
  int state() const;
  // The stream of a handle: null, 1 and 2 are default streams. A stale one is a misuse.
  StreamPointer find_stream(cuda::StreamHandle handle);
  std::shared_ptr<Event> find_event(cuda::EventHandle handle);

  // 0, or the error of a call that may not happen while a stream is captured.
  int forbidden_by_capture();

  // Puts work into a stream under the rules of capture; `kind` is the name under which it is
  // counted and planned (launch, copy, memset). *ticket stays null when it was captured.
  int submit(const char* kind, const StreamPointer& stream, std::function<void(Access&)> work,
             TicketPointer* ticket = nullptr);
  // Runs it now, on a stream's thread, and breaks the device when it touched what is not there.
  void perform(Device& device, const Fault& fault, const std::function<void(Access&)>& work);

  long count_handles(fakegpu_counts* counts);

 private:
  std::vector<std::unique_ptr<Device>> devices_;
};

Machine& machine();

// Begins every function of the runtime: counts it, applies what is planned, refuses when the
// machine cannot work, and keeps the error for cudaGetLastError().
//
// Functions that give handles back do so on a broken device, too, and report its error.
enum class Purpose { kUse, kCleanUp };

template <class Body>
int call(const char* function, const Body& body, Purpose purpose = Purpose::kUse) {
  Machine& m = machine();
  m.census.count_call(function);
  int error = m.state();
  const Fault fault = m.faults.next(function);
  if (fault.is(Effect::kDelay)) pause_for(fault.value);
  if (fault.is(Effect::kHang) || fault.is(Effect::kBlock)) pause_for(kHangMicroseconds);
  if (error == 0 && fault.is(Effect::kOutOfMemory)) error = cuda::kMemoryAllocation;
  if (error == 0 && fault.is(Effect::kError)) {
    error = fault.value != 0 ? static_cast<int>(fault.value) : kUnknownError;
  }
  if (error == 0 && fault.is(Effect::kSticky)) {
    error = fault.value != 0 ? static_cast<int>(fault.value) : kLaunchFailure;
    m.current_device().set_broken(error);
  }
  if (error == 0) {
    error = body(m);
  } else if (purpose == Purpose::kCleanUp) {
    body(m);
  }
  if (error != 0 && error != cuda::kNotReady) Machine::thread().last_error = error;
  return error;
}

}  // namespace fakegpu
