#include "ops/cuda/device.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <string>
#include <system_error>
#include <utility>

namespace kolo::internal::cuda {
namespace {

constexpr std::size_t kEventsAtFirst = 256;
constexpr std::size_t kFewEvents = 64;
constexpr std::size_t kLeastFusion = std::size_t{1} << 20;

}  // namespace

Status Device::check(Error error, const char* call) const {
  if (error == kSuccess) return Status::ok();
  return runtime_.status_of(error,
                            std::string(call) + " on CUDA device " + std::to_string(number_));
}

Result<std::unique_ptr<Device>> Device::open(const Runtime& runtime, int number,
                                             std::function<void()> notify) {
  std::unique_ptr<Device> device(new Device(runtime, number));
  KOLO_RETURN_IF_ERROR(device->check(runtime.cudaSetDevice(number), "cudaSetDevice"));
  char bus_id[32] = {};
  KOLO_RETURN_IF_ERROR(device->check(runtime.cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, number),
                                     "cudaDeviceGetPCIBusId"));
  device->bus_id_ = bus_id;
  std::ranges::transform(device->bus_id_, device->bus_id_.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  Result<Stream> stream = Stream::create(runtime, Stream::Priority::kHighest);
  if (!stream) {
    return Status(stream.status().code(),
                  "CUDA device " + std::to_string(number) + ": " + stream.status().text());
  }
  device->stream_ = *std::move(stream);
  KOLO_RETURN_IF_ERROR(device->events_->make(kEventsAtFirst));
  auto kernels = Kernels::load(runtime, number);
  if (kernels) device->kernels_ = *std::move(kernels);
  try {
    device->finisher_ =
        std::make_unique<Finisher>(runtime, number, device->stream(), std::move(notify));
  } catch (const std::system_error& error) {
    return resource_error(std::string("cannot start a thread for CUDA device ") +
                          std::to_string(number) + ": " + error.what() +
                          "; raise the limit of processes (ulimit -u), or the container's");
  }
  return device;
}

void Device::close() {
  finisher_.reset();
  if (!stream_) return;
  runtime_.cudaSetDevice(number_);
  runtime_.cudaStreamSynchronize(stream_.get());
  fusion_buffers_.clear();
  counters_.clear();
  kernels_.reset();
  stream_.reset();
  events_->destroy_all();
}

Result<std::byte*> Device::fusion_buffer(std::size_t bytes) {
  if (fusion_buffers_.empty() || fusion_buffers_.back().bytes() < bytes) {
    Result<DeviceBuffer> larger =
        DeviceBuffer::create(runtime_, std::bit_ceil(std::max(bytes, kLeastFusion)));
    if (!larger) return larger.status();
    fusion_buffers_.push_back(*std::move(larger));
  }
  return fusion_buffers_.back().data();
}

Status Device::await(const EventRef& event) {
  return check(runtime_.cudaStreamWaitEvent(stream_.get(), event.handle(), 0),
               "cudaStreamWaitEvent");
}

Result<EventRef> Device::record() {
  unrecorded_ = true;
  if (events_->free_count() < kFewEvents) KOLO_RETURN_IF_ERROR(events_->make(kEventsAtFirst));
  EventRef event = events_->take();
  if (!event) return resource_error("no CUDA events are left; wait for operations under way");
  KOLO_RETURN_IF_ERROR(
      check(runtime_.cudaEventRecord(event.handle(), stream_.get()), "cudaEventRecord"));
  unrecorded_ = false;
  return event;
}

}  // namespace kolo::internal::cuda
