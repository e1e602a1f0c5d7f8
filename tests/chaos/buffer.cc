#include "tests/chaos/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace kolo::chaos {
namespace {

constexpr std::size_t kCanaryBytes = 128;
constexpr std::size_t kPageBytes = 4096;
constexpr std::byte kCanary{0xc5};

}  // namespace

Buffer::Buffer(std::size_t bytes)
    : bytes_(bytes),
      whole_bytes_((bytes + 2 * kCanaryBytes + kPageBytes - 1) / kPageBytes * kPageBytes) {
  void* at =
      ::mmap(nullptr, whole_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  pages_ = at;
  place(static_cast<std::byte*>(at));
}

Buffer::Buffer(Buffer&& other) noexcept
    : bytes_(other.bytes_),
      whole_bytes_(other.whole_bytes_),
      pages_(std::exchange(other.pages_, nullptr)),
      whole_(std::exchange(other.whole_, nullptr)),
      data_(std::exchange(other.data_, nullptr)) {}

Buffer::~Buffer() { unmap(); }

void Buffer::place(std::byte* whole) {
  whole_ = whole;
  data_ = whole + kCanaryBytes;
  std::fill_n(whole_, whole_bytes_, kCanary);
}

void Buffer::move_into(kolo_context* context) {
  void* memory = nullptr;
  if (kolo_alloc(context, whole_bytes_, &memory) != KOLO_OK) return;
  unmap();
  place(static_cast<std::byte*>(memory));
}

bool Buffer::canaries_live() const {
  if (whole_ == nullptr) return true;
  const auto lives = [](std::byte value) { return value == kCanary; };
  return std::all_of(whole_, data_, lives) &&
         std::all_of(data_ + bytes_, whole_ + whole_bytes_, lives);
}

void Buffer::unmap() {
  if (pages_ == nullptr) return;
  ::munmap(pages_, whole_bytes_);
  pages_ = nullptr;
  whole_ = data_ = nullptr;
}

std::uint64_t Buffer::checksum() const {
  std::uint64_t sum = 0;
  if (whole_ == nullptr) return sum;
  for (std::size_t at = 0; at < whole_bytes_; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, whole_ + at, sizeof word);
    sum = (sum ^ word) * 0x100000001b3U;
    sum ^= sum >> 29;
  }
  return sum;
}

}  // namespace kolo::chaos
