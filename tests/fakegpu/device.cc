#include "tests/fakegpu/device.h"

#include <utility>

#include "ops/cuda/abi.h"
#include "tests/fakegpu/faults.h"

namespace fakegpu {

Device::Device(int number, std::string bus_id) : number_(number), bus_id_(std::move(bus_id)) {
  legacy_ = make_stream(StreamKind::kLegacy);
}

void Device::work(const std::function<void()>& body) {
  ++working_;
  if (error() == 0) body();
  --working_;
}

int Device::settled_error() const {
  const int error = error_.load();
  if (error == 0) return 0;
  constexpr long kMostMicroseconds = 1'000'000;
  pause_for(kMostMicroseconds, [this] { return working_.load() == 0; });
  return error;
}

StreamPointer Device::make_stream(StreamKind kind) {
  auto stream = std::make_shared<Stream>(*this, kind);
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [](const auto& weak) { return weak.expired(); });
  streams_.push_back(stream);
  return stream;
}

std::vector<StreamPointer> Device::streams() {
  const std::lock_guard lock(mutex_);
  std::vector<StreamPointer> result;
  for (const auto& weak : streams_) {
    if (StreamPointer stream = weak.lock()) result.push_back(std::move(stream));
  }
  return result;
}

TicketPointer Device::submit(Stream& stream, Stream::Work work, std::vector<TicketPointer> after) {
  const std::lock_guard lock(order_);
  if (stream.kind() == StreamKind::kLegacy) {
    for (const StreamPointer& other : streams()) {
      if (other->kind() != StreamKind::kBlocking) continue;
      if (TicketPointer tail = other->tail()) after.push_back(std::move(tail));
    }
  } else if (stream.kind() == StreamKind::kBlocking) {
    if (TicketPointer tail = legacy_->tail()) after.push_back(std::move(tail));
  }
  return stream.push(std::move(after), std::move(work));
}

std::vector<TicketPointer> Device::tails() {
  const std::lock_guard lock(order_);
  std::vector<TicketPointer> result;
  for (const StreamPointer& stream : streams()) {
    if (TicketPointer tail = stream->tail()) result.push_back(std::move(tail));
  }
  return result;
}

void Device::synchronize() {
  for (const TicketPointer& tail : tails()) tail->wait();
}

bool Device::has_blocking_capture() {
  for (const StreamPointer& stream : streams()) {
    if (stream->kind() == StreamKind::kBlocking &&
        stream->capture == kolo::internal::cuda::kCaptureActive)
      return true;
  }
  return false;
}

void Device::invalidate_captures() {
  for (const StreamPointer& stream : streams()) {
    int active = kolo::internal::cuda::kCaptureActive;
    stream->capture.compare_exchange_strong(active, kolo::internal::cuda::kCaptureInvalidated);
  }
}

}  // namespace fakegpu
