// Memory of the devices, and pinned host memory. A device buffer is a memfd mapped twice: without
// access at the address that the program sees, so that a host read faults as on a real device, and
// readable and writable at an address that only the fake uses.
//
// Threads: any. Ownership: the book shares each buffer with the work that uses it; addresses are
// not reused for some time after a buffer is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace fakegpu {

enum class MemoryKind { kDevice, kPinned, kNccl };

// One mapped buffer; unmaps what it has (but for the addresses that the program saw).
class Buffer {
 public:
  // Null when the system has no memory.
  static std::shared_ptr<Buffer> make(MemoryKind kind, int device, std::size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  MemoryKind kind() const { return kind_; }
  bool is_on_device() const { return kind_ != MemoryKind::kPinned; }
  int device() const { return device_; }
  std::size_t bytes() const { return bytes_; }
  std::byte* address() const { return seen_; }

  // Where the fake reaches what the program calls `pointer`; null when it is outside.
  std::byte* inside(const void* pointer, std::size_t bytes) const;

 private:
  friend class Memory;
  Buffer() = default;

  MemoryKind kind_ = MemoryKind::kDevice;
  int device_ = 0;
  std::size_t bytes_ = 0;
  std::size_t mapped_bytes_ = 0;
  std::byte* seen_ = nullptr;
  std::byte* inner_ = nullptr;
};

class Memory {
 public:
  Memory(int devices, std::size_t device_bytes)
      : device_bytes_(device_bytes), used_(static_cast<std::size_t>(devices)) {}

  // Null when the device or the system has no memory left.
  std::byte* allocate(MemoryKind kind, int device, std::size_t bytes);
  // The buffer that begins there, taken out of the book; null when none of this kind does.
  std::shared_ptr<Buffer> release(const void* pointer, MemoryKind kind);
  // The buffer that holds the address; null when none does.
  std::shared_ptr<Buffer> find(const void* pointer);

  long count(MemoryKind kind);
  std::size_t device_bytes_used();

 private:
  // The program's view of freed buffers, still reserved: a stale address finds nothing.
  static constexpr std::size_t kQuarantined = 256;

  const std::size_t device_bytes_;
  std::mutex mutex_;
  std::vector<std::size_t> used_;
  std::map<std::uintptr_t, std::shared_ptr<Buffer>> book_;
  std::deque<std::pair<std::byte*, std::size_t>> quarantine_;
};

// What a piece of work on a device may touch. Every address goes through here; one that is outside
// of its buffer, or not the device's, is noted and breaks the device.
class Access {
 public:
  Access(Memory& memory, int device) : memory_(memory), device_(device) {}

  // Device memory of any device (peers may reach each other's), or pinned memory. Null: outside.
  std::byte* open(const void* pointer, std::size_t bytes);
  template <class Type>
  Type* open_array(const Type* pointer, std::size_t count) {
    return reinterpret_cast<Type*>(open(pointer, count * sizeof(Type)));
  }
  bool failed() const { return failed_; }
  int device() const { return device_; }

 private:
  Memory& memory_;
  const int device_;
  std::vector<std::shared_ptr<Buffer>> kept_;
  bool failed_ = false;
};

}  // namespace fakegpu
