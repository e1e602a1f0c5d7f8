#include "core/gpus.h"

#include <algorithm>
#include <utility>

#include "coordinator/unit.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kMoreEvents = 256;
constexpr std::int32_t kMostDevices = 1 << 15;

// How often the launch thread looks at its communicators while something is under way.
Nanos between_looks(const Config& config) {
  const auto timeout = std::chrono::milliseconds(config.integer("peer_timeout_ms"));
  return std::clamp<Nanos>(timeout / 8, 20ms, 250ms);
}

cuda::StreamHandle handle_of(void* stream) { return static_cast<cuda::StreamHandle>(stream); }

std::string place_text(std::int32_t device) {
  return device == kHostMemory ? "in host memory" : "on device " + std::to_string(device);
}

}  // namespace

Gpus::Gpus(Config config, std::function<void()> notify)
    : config_(std::move(config)),
      notify_(std::move(notify)),
      presence_(config_),
      library_(Status(StatusCode::kUnsupported, "NCCL has not been looked for")) {}

// Once; the answer stays.
Status Gpus::load() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_loaded_, true)) return no_cuda_;
  auto runtime = cuda::Runtime::load(config_);
  if (!runtime) return no_cuda_ = runtime.status();
  const Result<int> devices = (*runtime)->count_devices();
  if (!devices) {
    is_loaded_ = devices.status().code() == StatusCode::kUnsupported;  // else ask again
    return is_loaded_ ? no_cuda_ = devices.status() : devices.status();
  }
  runtime_ = *std::move(runtime);
  thread_ = std::make_unique<cuda::LaunchThread>(*runtime_, between_looks(config_), notify_);
  return Status::ok();
}

const Result<std::unique_ptr<const nccl::Library>>& Gpus::library() {
  std::call_once(library_once_, [this] { library_ = nccl::Library::load(config_); });
  return library_;
}

// ---- Pointers -----------------------------------------------------------------------------------

// Without CUDA there is host memory only. Memory that both reach is the device's.
Result<std::int32_t> Gpus::device_of(const void* pointer) {
  cuda::PointerAttributes attributes;
  const cuda::Error error = runtime_->cudaPointerGetAttributes(&attributes, pointer);
  if (error == cuda::kInvalidValue) {  // of an old runtime: it does not know the pointer
    runtime_->cudaGetLastError();
    return kHostMemory;
  }
  KOLO_RETURN_IF_ERROR(runtime_->status_of(error, "cudaPointerGetAttributes"));
  const bool on_device =
      attributes.type == cuda::kMemoryDevice || attributes.type == cuda::kMemoryManaged;
  return on_device ? attributes.device : kHostMemory;
}

Result<std::int32_t> Gpus::place_of(std::int32_t asked, const void* input, const void* output) {
  if (is_on_host(asked)) return kHostMemory;
  if (asked < kDeviceHost || asked > kMostDevices) {
    return invalid_argument("options.device is " + std::to_string(asked) +
                            "; give the number of a CUDA device, KOLO_DEVICE_AUTO or "
                            "KOLO_DEVICE_HOST");
  }
  const Status loaded = load();
  if (!loaded) {
    if (asked == kDeviceAuto && loaded.code() == StatusCode::kUnsupported) return kHostMemory;
    if (asked == kDeviceAuto) return loaded;
    return Status(loaded.code(),
                  "a tensor on device " + std::to_string(asked) + ": " + loaded.text());
  }
  std::int32_t place = asked;
  const void* told_by = nullptr;
  for (const void* pointer : {input, output}) {
    if (pointer == nullptr) continue;
    const Result<std::int32_t> device = device_of(pointer);
    if (!device) return device.status();
    if (place == kDeviceAuto) place = *device;
    if (*device == place) {
      told_by = pointer;
      continue;
    }
    return invalid_argument(
        std::string(pointer == output && told_by != nullptr ? "the input is " : "a buffer is ") +
        (pointer == output && told_by != nullptr
             ? place_text(place) + " and the output " + place_text(*device)
             : place_text(*device) + ", and options.device says " + std::to_string(place) +
                   ": correct it, or leave it at KOLO_DEVICE_AUTO") +
        ". Both buffers of an operation lie in the same memory");
  }
  return place == kDeviceAuto ? kHostMemory : place;
}

// ---- Streams ------------------------------------------------------------------------------------

Status Gpus::check_capture(void* stream) {
  cuda::CaptureStatus status = cuda::kCaptureNone;
  const cuda::Error error = runtime_->cudaStreamIsCapturing(handle_of(stream), &status);
  if (error == cuda::kSuccess && status == cuda::kCaptureNone) return Status::ok();
  if (error == cuda::kCaptureImplicit || status != cuda::kCaptureNone) {
    return invalid_argument(
        "a CUDA graph is being captured on the stream, and kolo's operations cannot be part of a "
        "graph. Submit them outside of the capture, between launches of graphs");
  }
  return runtime_->status_of(error, "cudaStreamIsCapturing");
}

Result<cuda::EventRef> Gpus::mark(std::int32_t device, void* stream) {
  KOLO_RETURN_IF_ERROR(check_capture(stream));
  cuda::Device* const open = thread_->find(device);
  cuda::EventRef event = open == nullptr ? cuda::EventRef() : open->events().take();
  while (!event) {
    KOLO_RETURN_IF_ERROR(thread_->call([this, device]() -> Status {
      const Result<cuda::Device*> opened = thread_->device(device);
      return opened ? (*opened)->events().make(kMoreEvents) : opened.status();
    }));
    event = thread_->find(device)->events().take();
  }
  const cuda::Error error = runtime_->cudaEventRecord(event.handle(), handle_of(stream));
  if (error == cuda::kSuccess) return event;
  runtime_->cudaGetLastError();
  if (error != cuda::kInvalidHandle && error != cuda::kInvalidValue) {
    return runtime_->status_of(error, "cudaEventRecord");
  }
  return invalid_argument(
      "options.stream is no stream of device " + std::to_string(device) +
      ", where the tensor is (" + runtime_->cudaGetErrorString(error) +
      "). Give a stream of that device; the default stream is that of the device that "
      "cudaSetDevice made current");
}

Status Gpus::await(void* stream, std::span<const cuda::EventRef> events) {
  KOLO_RETURN_IF_ERROR(check_capture(stream));
  for (const cuda::EventRef& event : events) {
    const cuda::Error error = runtime_->cudaStreamWaitEvent(handle_of(stream), event.handle(), 0);
    if (error == cuda::kSuccess) continue;
    runtime_->cudaGetLastError();
    return runtime_->status_of(error, "cudaStreamWaitEvent");
  }
  return Status::ok();
}

// ---- Memory -------------------------------------------------------------------------------------

Result<void*> Gpus::allocate(std::int32_t device, std::size_t bytes) {
  KOLO_RETURN_IF_ERROR(load());
  const auto memory = std::make_shared<void*>(nullptr);
  KOLO_RETURN_IF_ERROR(thread_->call([this, device, bytes, memory] {
    return make(device, std::max<std::size_t>(bytes, 1), *memory);
  }));
  return *memory;
}

// On the launch thread, as the next: what is made is known before anything else happens there.
Status Gpus::make(std::int32_t device, std::size_t bytes, void*& memory) {
  const Result<cuda::Device*> open = thread_->device(device);
  if (!open) return open.status();
  const auto& nccl = library();
  bool of_nccl = nccl && (*nccl)->ncclMemAlloc != nullptr;
  of_nccl = of_nccl && (*nccl)->ncclMemAlloc(&memory, bytes) == nccl::kSuccess;
  if (of_nccl) {
    if (config_.flag("register_memory")) thread_->announce({device, memory, bytes});
  } else {
    memory = nullptr;
    KOLO_RETURN_IF_ERROR(runtime_->status_of(runtime_->cudaMalloc(&memory, bytes),
                                             "cudaMalloc of " + std::to_string(bytes) + " bytes"));
  }
  const std::lock_guard lock(mutex_);
  memory_[memory] = {device, of_nccl};
  return Status::ok();
}

Status Gpus::release(void* memory, const Memory& how) {
  runtime_->cudaSetDevice(how.device);
  if (!how.of_nccl) return runtime_->status_of(runtime_->cudaFree(memory), "cudaFree");
  thread_->withdraw(memory);
  (*library_)->ncclMemFree(memory);
  return Status::ok();
}

Result<bool> Gpus::free(void* memory) {
  {
    const std::lock_guard lock(mutex_);
    if (!memory_.contains(memory)) return false;
  }
  const auto is_ours = std::make_shared<bool>(false);
  KOLO_RETURN_IF_ERROR(thread_->call([this, memory, is_ours]() -> Status {
    std::unique_lock lock(mutex_);
    const auto node = memory_.extract(memory);
    lock.unlock();
    *is_ours = !node.empty();
    return *is_ours ? release(memory, node.mapped()) : Status::ok();
  }));
  return *is_ours;
}

void Gpus::refuse(const Status& why, Nanos patience) {
  const std::lock_guard lock(mutex_);
  if (thread_ != nullptr) thread_->refuse(why, patience);
}

// CUDA's own, whose freeing waits for what is queued. It comes and goes with one operation of one
// rank, so it is not registered.
Result<void*> Gpus::allocate_result(std::int32_t device, std::size_t bytes) {
  void* memory = nullptr;
  KOLO_RETURN_IF_ERROR(
      runtime_->status_of(runtime_->cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)),
                          "cudaMalloc of " + std::to_string(bytes) + " bytes"));
  const std::lock_guard lock(mutex_);
  memory_[memory] = {device, false};
  return memory;
}

void Gpus::discard(void* memory) {
  thread_->errand([this, memory] {
    std::unique_lock lock(mutex_);
    const auto node = memory_.extract(memory);
    lock.unlock();
    if (!node.empty()) static_cast<void>(release(memory, node.mapped()).is_ok());
  });
}

bool Gpus::stop(const std::function<void()>& last, Nanos patience) {
  if (thread_ == nullptr) return true;
  const auto give_back = [this, last] {
    last();
    std::unique_lock lock(mutex_);
    const auto left = std::exchange(memory_, {});
    lock.unlock();
    for (const auto& [memory, how] : left) static_cast<void>(release(memory, how).is_ok());
  };
  return thread_->stop(give_back, patience);
}

}  // namespace kolo::internal
