#include "tests/fakegpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace fakegpu {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::byte* map(std::size_t bytes, int protection, int flags, int file) {
  void* address = mmap(nullptr, bytes, protection, flags, file, 0);
  return address == MAP_FAILED ? nullptr : static_cast<std::byte*>(address);
}

}  // namespace

std::shared_ptr<Buffer> Buffer::make(MemoryKind kind, int device, std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  std::shared_ptr<Buffer> buffer(new Buffer);
  buffer->kind_ = kind;
  buffer->device_ = device;
  buffer->bytes_ = bytes;
  buffer->mapped_bytes_ = whole_pages(bytes);
  if (kind == MemoryKind::kPinned) {
    buffer->seen_ =
        map(buffer->mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    return buffer->seen_ != nullptr ? buffer : nullptr;
  }
  const int file = memfd_create("fakegpu memory", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  if (ftruncate(file, static_cast<off_t>(buffer->mapped_bytes_)) == 0) {
    buffer->seen_ = map(buffer->mapped_bytes_, PROT_NONE, MAP_SHARED, file);
    buffer->inner_ = map(buffer->mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file);
  }
  close(file);
  return buffer->seen_ != nullptr && buffer->inner_ != nullptr ? buffer : nullptr;
}

Buffer::~Buffer() {
  if (inner_ != nullptr) munmap(inner_, mapped_bytes_);
  if (kind_ == MemoryKind::kPinned && seen_ != nullptr) munmap(seen_, mapped_bytes_);
}

std::byte* Buffer::inside(const void* pointer, std::size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(pointer);
  if (at < seen_ || at > seen_ + bytes_) return nullptr;
  const auto offset = static_cast<std::size_t>(at - seen_);
  if (bytes > bytes_ - offset) return nullptr;
  return (inner_ != nullptr ? inner_ : seen_) + offset;
}

std::byte* Memory::allocate(MemoryKind kind, int device, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::size_t& used = used_[static_cast<std::size_t>(device)];
  const bool on_device = kind != MemoryKind::kPinned;
  if (on_device && bytes > device_bytes_ - used) return nullptr;
  std::shared_ptr<Buffer> buffer = Buffer::make(kind, device, bytes);
  if (buffer == nullptr) return nullptr;
  if (on_device) used += bytes;
  std::byte* address = buffer->address();
  book_.emplace(reinterpret_cast<std::uintptr_t>(address), std::move(buffer));
  return address;
}

std::shared_ptr<Buffer> Memory::release(const void* pointer, MemoryKind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = book_.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == book_.end() || found->second->kind() != kind) return nullptr;
  std::shared_ptr<Buffer> buffer = std::move(found->second);
  book_.erase(found);
  if (!buffer->is_on_device()) return buffer;
  used_[static_cast<std::size_t>(buffer->device())] -= buffer->bytes();
  // The memory goes, the addresses stay taken.
  mmap(buffer->seen_, buffer->mapped_bytes_, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  quarantine_.emplace_back(buffer->seen_, buffer->mapped_bytes_);
  if (quarantine_.size() > kQuarantined) {
    munmap(quarantine_.front().first, quarantine_.front().second);
    quarantine_.pop_front();
  }
  return buffer;
}

std::shared_ptr<Buffer> Memory::find(const void* pointer) {
  const std::lock_guard lock(mutex_);
  auto next = book_.upper_bound(reinterpret_cast<std::uintptr_t>(pointer));
  if (next == book_.begin()) return nullptr;
  const std::shared_ptr<Buffer>& buffer = std::prev(next)->second;
  const auto* at = static_cast<const std::byte*>(pointer);
  return at < buffer->address() + buffer->bytes() ? buffer : nullptr;
}

long Memory::count(MemoryKind kind) {
  const std::lock_guard lock(mutex_);
  long count = 0;
  for (const auto& [address, buffer] : book_) count += buffer->kind() == kind ? 1 : 0;
  return count;
}

std::size_t Memory::device_bytes_used() {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const std::size_t bytes : used_) sum += bytes;
  return sum;
}

std::byte* Access::open(const void* pointer, std::size_t bytes) {
  static std::byte nothing{};
  if (bytes == 0) return &nothing;  // wherever it is
  std::shared_ptr<Buffer> buffer = memory_.find(pointer);
  std::byte* inside = buffer == nullptr ? nullptr : buffer->inside(pointer, bytes);
  if (inside == nullptr) {
    failed_ = true;
    return nullptr;
  }
  kept_.push_back(std::move(buffer));
  return inside;
}

}  // namespace fakegpu
