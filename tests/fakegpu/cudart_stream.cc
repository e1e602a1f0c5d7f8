// The fake runtime's functions about streams, events and capture.
#include <cstring>
#include <utility>

#include "tests/fakegpu/machine.h"
#include "tests/fakegpu/runtime_abi.h"

namespace fakegpu {
namespace {

int create_stream(Machine& m, cuda::StreamHandle* stream, unsigned flags) {
  if (stream == nullptr || flags > cuda::kStreamNonBlocking) return cuda::kInvalidValue;
  const StreamKind kind =
      flags == cuda::kStreamNonBlocking ? StreamKind::kNonBlocking : StreamKind::kBlocking;
  *stream = static_cast<cuda::StreamHandle>(m.streams.add(m.current_device().make_stream(kind)));
  return 0;
}

// A captured stream may not be waited for; trying spoils the capture.
int refuse_captured(const StreamPointer& stream) {
  if (stream->capture == cuda::kCaptureNone) return 0;
  stream->capture = cuda::kCaptureInvalidated;
  return cuda::kCaptureUnsupported;
}

int wait_for(Machine& m, const TicketPointer& ticket) {
  m.census.count_host_wait();
  if (ticket != nullptr) ticket->wait();
  return m.state();
}

int record(Machine& m, Event& event, const StreamPointer& stream) {
  if (event.device() != stream->device().number()) return kInvalidResourceHandle;
  TicketPointer ticket;
  const int error = m.submit(
      "record", stream, [](Access&) {}, &ticket);
  if (error != 0) return error;
  if (ticket == nullptr) {
    event.record_captured();
  } else {
    event.record(std::move(ticket));
  }
  return 0;
}

int stream_wait(Machine& m, const StreamPointer& stream, Event& event) {
  const bool is_captured = stream->capture != cuda::kCaptureNone;
  if (event.is_captured() != is_captured && (event.is_captured() || event.ticket() != nullptr)) {
    // The real one would draw this stream into the capture, or refuse: no test wants either.
    stream->device().invalidate_captures();
    return kCaptureIsolation;
  }
  if (is_captured) {
    m.census.count_call("captured");
    return 0;
  }
  Device& device = stream->device();
  if (stream->kind() == StreamKind::kLegacy && device.has_blocking_capture()) {
    return cuda::kCaptureImplicit;
  }
  if (TicketPointer ticket = event.ticket()) device.submit(*stream, {}, {std::move(ticket)});
  return 0;
}

}  // namespace
}  // namespace fakegpu

namespace kolo::internal::cuda {

using fakegpu::call;
using fakegpu::kInvalidResourceHandle;
using fakegpu::Machine;
using fakegpu::Purpose;
using EventPointer = std::shared_ptr<fakegpu::Event>;

extern "C" {

Error cudaStreamCreate(StreamHandle* stream) {
  return call(__func__, [=](Machine& m) { return fakegpu::create_stream(m, stream, 0); });
}

Error cudaStreamCreateWithFlags(StreamHandle* stream, unsigned flags) {
  return call(__func__, [=](Machine& m) { return fakegpu::create_stream(m, stream, flags); });
}

Error cudaStreamCreateWithPriority(StreamHandle* stream, unsigned flags, int) {
  return call(__func__, [=](Machine& m) { return fakegpu::create_stream(m, stream, flags); });
}

Error cudaStreamDestroy(StreamHandle stream) {
  return call(
      __func__,
      [=](Machine& m) {
        const fakegpu::StreamPointer found = m.streams.take(stream);
        if (found == nullptr) {
          m.census.misuse("a stream was destroyed that is destroyed already, or never was one");
          return kInvalidResourceHandle;
        }
        found->close();
        return kSuccess;
      },
      Purpose::kCleanUp);
}

Error cudaStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned) {
  return call(__func__, [=](Machine& m) {
    const fakegpu::StreamPointer found = m.find_stream(stream);
    const EventPointer awaited = m.find_event(event);
    if (found == nullptr || awaited == nullptr) return kInvalidResourceHandle;
    return fakegpu::stream_wait(m, found, *awaited);
  });
}

Error cudaStreamSynchronize(StreamHandle stream) {
  return call(__func__, [=](Machine& m) {
    const fakegpu::StreamPointer found = m.find_stream(stream);
    if (found == nullptr) return kInvalidResourceHandle;
    if (const Error error = fakegpu::refuse_captured(found)) return error;
    if (const Error error = m.forbidden_by_capture()) return error;
    // The default stream stands behind the blocking ones: what it waits for is theirs, too.
    if (found->kind() == fakegpu::StreamKind::kLegacy) {
      return fakegpu::wait_for(m, found->device().submit(*found, {}));
    }
    return fakegpu::wait_for(m, found->tail());
  });
}

Error cudaStreamQuery(StreamHandle stream) {
  return call(__func__, [=](Machine& m) {
    const fakegpu::StreamPointer found = m.find_stream(stream);
    if (found == nullptr) return kInvalidResourceHandle;
    if (const Error error = fakegpu::refuse_captured(found)) return error;
    if (const Error error = m.forbidden_by_capture()) return error;
    return found->is_idle() ? kSuccess : kNotReady;
  });
}

Error cudaStreamGetDevice(StreamHandle stream, int* device) {
  return call(__func__, [=](Machine& m) {
    const fakegpu::StreamPointer found = m.find_stream(stream);
    if (found == nullptr) return kInvalidResourceHandle;
    *device = found->device().number();
    return kSuccess;
  });
}

Error cudaStreamIsCapturing(StreamHandle stream, CaptureStatus* status) {
  return call(__func__, [=](Machine& m) {
    const fakegpu::StreamPointer found = m.find_stream(stream);
    if (found == nullptr) return kInvalidResourceHandle;
    if (status == nullptr) return kInvalidValue;
    if (found->kind() == fakegpu::StreamKind::kLegacy && found->device().has_blocking_capture()) {
      return kCaptureImplicit;
    }
    *status = found->capture;
    return kSuccess;
  });
}

Error cudaStreamBeginCapture(StreamHandle stream, CaptureMode mode) {
  return call(__func__, [=](Machine& m) {
    const fakegpu::StreamPointer found = m.find_stream(stream);
    if (found == nullptr) return kInvalidResourceHandle;
    if (found->kind() == fakegpu::StreamKind::kLegacy) return kCaptureUnsupported;
    if (mode < 0 || mode > fakegpu::kCaptureModeRelaxed) return kInvalidValue;
    int none = kCaptureNone;
    if (!found->capture.compare_exchange_strong(none, kCaptureActive)) return 901;
    found->capture_mode = mode;
    if (mode == fakegpu::kCaptureModeGlobal) ++m.global_captures;
    if (mode != fakegpu::kCaptureModeRelaxed) ++Machine::thread().captures;
    return kSuccess;
  });
}

Error cudaStreamEndCapture(StreamHandle stream, GraphHandle* graph) {
  return call(__func__, [=](Machine& m) {
    const fakegpu::StreamPointer found = m.find_stream(stream);
    if (found == nullptr) return kInvalidResourceHandle;
    if (graph == nullptr) return kInvalidValue;
    *graph = nullptr;
    const int status = found->capture.exchange(kCaptureNone);
    if (status == kCaptureNone) return fakegpu::kCaptureUnmatched;
    if (found->capture_mode == fakegpu::kCaptureModeGlobal) --m.global_captures;
    if (found->capture_mode != fakegpu::kCaptureModeRelaxed) --Machine::thread().captures;
    if (status == kCaptureInvalidated) return fakegpu::kCaptureInvalid;
    *graph = static_cast<GraphHandle>(m.graphs.add(std::make_shared<fakegpu::Graph>()));
    return kSuccess;
  });
}

Error cudaThreadExchangeStreamCaptureMode(CaptureMode* mode) {
  return call(__func__, [=](Machine&) {
    if (mode == nullptr || *mode < 0 || *mode > fakegpu::kCaptureModeRelaxed) return kInvalidValue;
    std::swap(*mode, Machine::thread().capture_mode);
    return kSuccess;
  });
}

Error cudaGraphDestroy(GraphHandle graph) {
  return call(
      __func__,
      [=](Machine& m) { return m.graphs.take(graph) != nullptr ? kSuccess : kInvalidValue; },
      Purpose::kCleanUp);
}

Error cudaLaunchHostFunc(StreamHandle stream, HostFunction function, void* user) {
  return call(__func__, [=](Machine& m) {
    return m.submit("host function", m.find_stream(stream),
                    [=](fakegpu::Access&) { function(user); });
  });
}

Error cudaEventCreateWithFlags(EventHandle* event, unsigned flags) {
  return call(__func__, [=](Machine& m) {
    if (event == nullptr) return kInvalidValue;
    *event = static_cast<EventHandle>(
        m.events.add(std::make_shared<fakegpu::Event>(Machine::thread().device, flags)));
    return kSuccess;
  });
}

Error cudaEventCreate(EventHandle* event) {
  return call(__func__, [=](Machine& m) {
    if (event == nullptr) return kInvalidValue;
    *event = static_cast<EventHandle>(
        m.events.add(std::make_shared<fakegpu::Event>(Machine::thread().device, 0u)));
    return kSuccess;
  });
}

Error cudaEventRecord(EventHandle event, StreamHandle stream) {
  return call(__func__, [=](Machine& m) {
    const EventPointer found = m.find_event(event);
    const fakegpu::StreamPointer in = m.find_stream(stream);
    if (found == nullptr || in == nullptr) return kInvalidResourceHandle;
    return fakegpu::record(m, *found, in);
  });
}

Error cudaEventQuery(EventHandle event) {
  return call(__func__, [=](Machine& m) {
    const EventPointer found = m.find_event(event);
    if (found == nullptr) return kInvalidResourceHandle;
    if (found->is_captured()) return fakegpu::kCapturedEvent;
    if (const Error error = m.forbidden_by_capture()) return error;
    const fakegpu::TicketPointer ticket = found->ticket();
    return ticket == nullptr || ticket->done() ? kSuccess : kNotReady;
  });
}

Error cudaEventSynchronize(EventHandle event) {
  return call(__func__, [=](Machine& m) {
    const EventPointer found = m.find_event(event);
    if (found == nullptr) return kInvalidResourceHandle;
    if (found->is_captured()) return fakegpu::kCapturedEvent;
    if (const Error error = m.forbidden_by_capture()) return error;
    return fakegpu::wait_for(m, found->ticket());
  });
}

Error cudaEventElapsedTime(float* milliseconds, EventHandle from, EventHandle to) {
  return call(__func__, [=](Machine& m) {
    const EventPointer first = m.find_event(from);
    const EventPointer last = m.find_event(to);
    if (first == nullptr || last == nullptr) return kInvalidResourceHandle;
    const fakegpu::TicketPointer begin = first->ticket();
    const fakegpu::TicketPointer end = last->ticket();
    if (begin == nullptr || end == nullptr ||
        ((first->flags() | last->flags()) & kEventDisableTiming) != 0) {
      return kInvalidResourceHandle;
    }
    if (!begin->done() || !end->done()) return kNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(end->when() - begin->when()).count();
    return kSuccess;
  });
}

Error cudaEventDestroy(EventHandle event) {
  return call(
      __func__,
      [=](Machine& m) {
        if (m.events.take(event) != nullptr) return kSuccess;
        m.census.misuse("an event was destroyed that is destroyed already, or never was one");
        return kInvalidResourceHandle;
      },
      Purpose::kCleanUp);
}

}  // extern "C"
}  // namespace kolo::internal::cuda
