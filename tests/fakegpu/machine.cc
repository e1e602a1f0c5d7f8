#include "tests/fakegpu/machine.h"

#include <unistd.h>

#include <cstdio>

#include "tests/fakegpu/per_thread.h"

namespace fakegpu {
namespace {

std::string bus_id(const Settings& settings, int number) {
  char text[32];
  std::snprintf(
      text, sizeof text, "0000:%02x:00.0",
      static_cast<unsigned>(settings.same_gpu ? 0 : settings.device_offset + number) & 0xffu);
  return text;
}

// The process that made the machine: a forked child owes nothing. 0: no audit.
std::atomic<pid_t> audited_process{0};

}  // namespace

ThreadState::~ThreadState() {
  for (const StreamPointer& stream : default_streams) {
    if (stream != nullptr) stream->close();
  }
}

Machine::Machine()
    : settings(Settings::from_environment()),
      memory(std::max(settings.devices, 1), settings.memory_bytes) {
  for (int number = 0; number < settings.devices; ++number) {
    devices_.push_back(std::make_unique<Device>(number, bus_id(settings, number)));
  }
  if (!faults.set(settings.faults)) census.misuse("FAKEGPU_FAULT cannot be read");
  if (settings.census_at_exit) audited_process = getpid();
}

Machine& machine() {
  static auto* const the_machine = std::make_unique<Machine>().release();
  return *the_machine;
}

ThreadState& Machine::thread() {
  static auto* const states = new PerThread<ThreadState>();  // outlives every thread
  return states->get();
}

Device* Machine::device(int number) {
  if (number < 0 || number >= device_count()) return nullptr;
  return devices_[static_cast<std::size_t>(number)].get();
}

int Machine::state() const {
  if (!settings.has_driver) return cuda::kInsufficientDriver;
  if (devices_.empty()) return cuda::kNoDevice;
  for (const auto& device : devices_) {
    if (const int error = device->settled_error()) return error;
  }
  return 0;
}

StreamPointer Machine::find_stream(cuda::StreamHandle handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value <= 1) return current_device().legacy_stream();
  if (value == 2) {
    std::vector<StreamPointer>& mine = thread().default_streams;
    mine.resize(devices_.size());
    StreamPointer& stream = mine[static_cast<std::size_t>(thread().device)];
    if (stream == nullptr) stream = current_device().make_stream(StreamKind::kBlocking);
    return stream;
  }
  StreamPointer stream = streams.find(handle);
  if (stream == nullptr) census.misuse("a stream was used that is destroyed, or never was one");
  return stream;
}

std::shared_ptr<Event> Machine::find_event(cuda::EventHandle handle) {
  std::shared_ptr<Event> event = events.find(handle);
  if (event == nullptr) census.misuse("an event was used that is destroyed, or never was one");
  return event;
}

int Machine::forbidden_by_capture() {
  const ThreadState& mine = thread();
  const bool seen = mine.capture_mode == kCaptureModeGlobal
                        ? global_captures.load() > 0 || mine.captures > 0
                        : mine.capture_mode == kCaptureModeThreadLocal && mine.captures > 0;
  if (!seen) return 0;
  for (const auto& device : devices_) device->invalidate_captures();
  return cuda::kCaptureUnsupported;
}

int Machine::submit(const char* kind, const StreamPointer& stream,
                    std::function<void(Access&)> work, TicketPointer* ticket) {
  if (stream == nullptr) return kInvalidResourceHandle;
  if (stream->capture == cuda::kCaptureInvalidated) return kCaptureInvalid;
  if (stream->capture == cuda::kCaptureActive) {
    census.count_call("captured");
    return 0;
  }
  Device& device = stream->device();
  if (stream->kind() == StreamKind::kLegacy && device.has_blocking_capture()) {
    device.invalidate_captures();
    return cuda::kCaptureImplicit;
  }
  const std::string name = kind;
  const Fault fault = faults.next(name);
  TicketPointer place =
      device.submit(*stream, [this, &device, name, fault, work = std::move(work)] {
        census.count_call(name);
        perform(device, fault, work);
      });
  if (ticket != nullptr) *ticket = std::move(place);
  return 0;
}

void Machine::perform(Device& device, const Fault& fault,
                      const std::function<void(Access&)>& work) {
  if (fault.is(Effect::kDelay)) pause_for(fault.value);
  if (fault.is(Effect::kHang) || fault.is(Effect::kBlock)) pause_for(kHangMicroseconds);
  if (fault.is(Effect::kSticky) || fault.is(Effect::kError)) {
    device.set_broken(fault.value != 0 ? static_cast<int>(fault.value) : kLaunchFailure);
    return;
  }
  Access access(memory, device.number());
  work(access);
  if (access.failed()) {
    std::fprintf(stderr, "fakegpu: device %d: an access outside of every buffer\n",
                 device.number());
    device.set_broken(kIllegalAddress);
  }
}

long Machine::count_handles(fakegpu_counts* counts) {
  fakegpu_counts now{};
  now.streams = streams.size();
  now.events = events.size();
  now.device_buffers = memory.count(MemoryKind::kDevice);
  now.pinned_buffers = memory.count(MemoryKind::kPinned);
  now.libraries = libraries.size();
  now.graphs = graphs.size();
  now.communicators = communicators.load();
  now.registrations = registrations.load();
  now.reduction_ops = reduction_ops.load();
  now.nccl_buffers = memory.count(MemoryKind::kNccl);
  now.device_bytes = static_cast<long>(memory.device_bytes_used());
  if (counts != nullptr) *counts = now;
  return now.streams + now.events + now.device_buffers + now.pinned_buffers + now.libraries +
         now.graphs + now.communicators + now.registrations + now.reduction_ops + now.nccl_buffers;
}

namespace {

// Runs when the library is finalised: behind every destructor and exit handler of the program.
// Handles left over, and misuse, change the exit code.
[[gnu::destructor]] void audit() {
  const pid_t process = getpid();
  if (audited_process != process) return;
  Machine& m = machine();
  fakegpu_counts left{};
  const long handles = m.count_handles(&left);
  const long misuses = m.census.misuses();
  if (handles == 0 && misuses == 0) return;
  std::fprintf(stderr,
               "fakegpu: left at exit (process %d): streams %ld, events %ld, device buffers %ld "
               "(%ld bytes), pinned buffers %ld, libraries %ld, graphs %ld, communicators %ld, "
               "registrations %ld, reduction ops %ld, NCCL buffers %ld; misuses %ld\n",
               process, left.streams, left.events, left.device_buffers, left.device_bytes,
               left.pinned_buffers, left.libraries, left.graphs, left.communicators,
               left.registrations, left.reduction_ops, left.nccl_buffers, misuses);
  std::fflush(nullptr);
  _exit(FAKEGPU_EXIT_CODE);
}

}  // namespace
}  // namespace fakegpu
