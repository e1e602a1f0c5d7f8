#include "ops/cuda/finisher.h"

#include <string>
#include <utility>

namespace kolo::internal::cuda {

void relax_capture(const Runtime& runtime) {
  if (runtime.cudaThreadExchangeStreamCaptureMode == nullptr) return;
  CaptureMode mode = kCaptureModeRelaxed;
  runtime.cudaThreadExchangeStreamCaptureMode(&mode);
}

Finisher::Finisher(const Runtime& runtime, int device, StreamHandle stream,
                   std::function<void()> notify)
    : runtime_(runtime), device_(device), stream_(stream), notify_(std::move(notify)) {
  thread_ = std::thread([this] { run(); });
}

Finisher::~Finisher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Finisher::push(Task& task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(&task);
  }
  changed_.notify_one();
}

// What became of it.
Status Finisher::wait(Task& task) {
  if (!task.done_) {  // no event could be recorded behind it
    runtime_.cudaStreamSynchronize(task.drained_);
    return std::exchange(task.failure_, Status::ok());
  }
  const Error error = runtime_.cudaEventSynchronize(task.done_.handle());
  if (error != kSuccess) runtime_.cudaStreamSynchronize(stream_);  // it may be at work all the same
  Status status = task.verdict();
  if (status.is_ok() && error != kSuccess)
    status = runtime_.status_of(error, "work on CUDA device " + std::to_string(device_));
  task.done_ = {};
  return status;
}

void Finisher::run() {
  relax_capture(runtime_);
  runtime_.cudaSetDevice(device_);
  while (true) {
    Task* task = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = tasks_.front();
      tasks_.pop_front();
    }
    Status status = wait(*task);
    task->end(std::move(status));
    notify_();
  }
}

}  // namespace kolo::internal::cuda
