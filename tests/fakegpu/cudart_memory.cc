// The fake runtime's functions about memory.
#include <cstring>
#include <utility>

#include "tests/fakegpu/machine.h"
#include "tests/fakegpu/runtime_abi.h"

namespace fakegpu {
namespace {

int allocate(Machine& m, MemoryKind kind, void** pointer, std::size_t bytes) {
  if (pointer == nullptr) return cuda::kInvalidValue;
  *pointer = nullptr;
  if (const int error = m.forbidden_by_capture()) return error;
  if (bytes == 0) return 0;
  *pointer = m.memory.allocate(kind, Machine::thread().device, bytes);
  return *pointer != nullptr ? 0 : cuda::kMemoryAllocation;
}

// As in CUDA: work that may use the memory is done before it goes.
int release(Machine& m, MemoryKind kind, void* pointer) {
  if (pointer == nullptr) return 0;
  if (const int error = m.forbidden_by_capture()) return error;
  const std::shared_ptr<Buffer> buffer = m.memory.find(pointer);
  if (buffer == nullptr || buffer->address() != pointer || buffer->kind() != kind) {
    m.census.misuse("memory was freed that is freed already, or was never allocated this way");
    return cuda::kInvalidValue;
  }
  m.census.count_host_wait();
  m.device(buffer->device())->synchronize();
  if (m.memory.release(pointer, kind) == nullptr) {
    m.census.misuse("memory was freed by two threads at once");
    return cuda::kInvalidValue;
  }
  return m.state();
}

// One end of a copy.
struct End {
  const void* pointer = nullptr;
  bool on_device = false;
  bool pageable = false;

  // Where to read or write; null when it is outside.
  std::byte* open(Access& access, std::size_t bytes) const {
    if (pageable) return static_cast<std::byte*>(const_cast<void*>(pointer));
    return access.open(pointer, bytes);
  }
};

End end_of(Machine& m, const void* pointer) {
  const std::shared_ptr<Buffer> buffer = m.memory.find(pointer);
  return {pointer, buffer != nullptr && buffer->is_on_device(), buffer == nullptr};
}

bool fits(cuda::CopyKind kind, const End& to, const End& from) {
  if (kind == cuda::kCopyByAddress) return true;
  const bool device_to = kind == cuda::kCopyHostToDevice || kind == cuda::kCopyDeviceToDevice;
  const bool device_from = kind == cuda::kCopyDeviceToHost || kind == cuda::kCopyDeviceToDevice;
  return to.on_device == device_to && from.on_device == device_from;
}

int copy(Machine& m, void* to, const void* from, std::size_t bytes, cuda::CopyKind kind,
         const StreamPointer& stream, bool is_blocking) {
  if (kind < 0 || kind > cuda::kCopyByAddress) return kInvalidCopyDirection;
  if (bytes == 0) return 0;
  const End target = end_of(m, to);
  const End source = end_of(m, from);
  if (!fits(kind, target, source)) return cuda::kInvalidValue;
  TicketPointer ticket;
  const int error = m.submit(
      "copy", stream,
      [target, source, bytes](Access& access) {
        std::byte* write = target.open(access, bytes);
        const std::byte* read = source.open(access, bytes);
        if (write != nullptr && read != nullptr) std::memmove(write, read, bytes);
      },
      &ticket);
  if (error != 0 || ticket == nullptr) return error;
  if (!is_blocking && !target.pageable && !source.pageable) return 0;
  m.census.count_host_wait();
  ticket->wait();
  return m.state();
}

int fill(Machine& m, void* pointer, int value, std::size_t bytes, const StreamPointer& stream,
         TicketPointer* ticket) {
  if (bytes == 0) return 0;
  if (m.memory.find(pointer) == nullptr) return cuda::kInvalidValue;
  return m.submit(
      "memset", stream,
      [=](Access& access) {
        std::byte* at = access.open(pointer, bytes);
        if (at != nullptr) std::memset(at, value, bytes);
      },
      ticket);
}

}  // namespace
}  // namespace fakegpu

namespace kolo::internal::cuda {

using fakegpu::call;
using fakegpu::Machine;
using fakegpu::MemoryKind;
using fakegpu::Purpose;

extern "C" {

Error cudaMalloc(void** pointer, std::size_t bytes) {
  return call(__func__, [=](Machine& m) {
    return fakegpu::allocate(m, MemoryKind::kDevice, pointer, bytes);
  });
}

Error cudaFree(void* pointer) {
  return call(
      __func__, [=](Machine& m) { return fakegpu::release(m, MemoryKind::kDevice, pointer); },
      Purpose::kCleanUp);
}

Error cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return call(__func__, [=](Machine& m) {
    return fakegpu::allocate(m, MemoryKind::kPinned, pointer, bytes);
  });
}

Error cudaMallocHost(void** pointer, std::size_t bytes) {
  return call(__func__, [=](Machine& m) {
    return fakegpu::allocate(m, MemoryKind::kPinned, pointer, bytes);
  });
}

Error cudaFreeHost(void* pointer) {
  return call(
      __func__, [=](Machine& m) { return fakegpu::release(m, MemoryKind::kPinned, pointer); },
      Purpose::kCleanUp);
}

Error cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call(__func__, [=](Machine& m) {
    *total = m.settings.memory_bytes;
    *free = *total - std::min(*total, m.memory.device_bytes_used());
    return kSuccess;
  });
}

Error cudaPointerGetAttributes(PointerAttributes* result, const void* pointer) {
  return call(__func__, [=](Machine& m) {
    if (result == nullptr) return kInvalidValue;
    *result = PointerAttributes();
    const std::shared_ptr<fakegpu::Buffer> buffer = m.memory.find(pointer);
    if (buffer == nullptr) {
      result->device = -2;  // as the real one says it: cudaInvalidDeviceId
      result->host_pointer = const_cast<void*>(pointer);
      return kSuccess;
    }
    result->type = buffer->is_on_device() ? kMemoryDevice : kMemoryHost;
    result->device = buffer->device();
    result->device_pointer = const_cast<void*>(pointer);
    if (!buffer->is_on_device()) result->host_pointer = const_cast<void*>(pointer);
    return kSuccess;
  });
}

Error cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, CopyKind kind,
                      StreamHandle stream) {
  return call(__func__, [=](Machine& m) {
    return fakegpu::copy(m, to, from, bytes, kind, m.find_stream(stream), false);
  });
}

Error cudaMemcpy(void* to, const void* from, std::size_t bytes, CopyKind kind) {
  return call(__func__, [=](Machine& m) {
    if (const Error error = m.forbidden_by_capture()) return error;
    return fakegpu::copy(m, to, from, bytes, kind, m.find_stream(nullptr), true);
  });
}

Error cudaMemsetAsync(void* pointer, int value, std::size_t bytes, StreamHandle stream) {
  return call(__func__, [=](Machine& m) {
    return fakegpu::fill(m, pointer, value, bytes, m.find_stream(stream), nullptr);
  });
}

Error cudaMemset(void* pointer, int value, std::size_t bytes) {
  return call(__func__, [=](Machine& m) {
    return fakegpu::fill(m, pointer, value, bytes, m.find_stream(nullptr), nullptr);
  });
}

}  // extern "C"
}  // namespace kolo::internal::cuda
