#include "tests/multiproc/random/memory.h"

#include <algorithm>
#include <utility>

namespace kolo::programs {
namespace {

constexpr std::size_t kGuardBytes = 32;
constexpr std::byte kGuard{0xa5};
constexpr std::byte kPattern{0x5a};

}  // namespace

Block::Block(kolo_context* context, std::size_t bytes, internal::Rng& random)
    : context_(context), bytes_(bytes) {
  const std::size_t shift = random.chance(50) ? 0 : random.below(std::uint64_t{16});
  whole_bytes_ = bytes + 2 * kGuardBytes + shift;
  if (random.chance(40) && kolo_alloc(context, whole_bytes_, &allocated_) == KOLO_OK) {
    whole_ = static_cast<std::byte*>(allocated_);
  } else {
    own_.resize(whole_bytes_);
    whole_ = own_.data();
  }
  std::fill_n(whole_, whole_bytes_, kGuard);
  data_ = whole_ + kGuardBytes + shift;
  std::fill_n(data_, bytes, kPattern);
}

Block::Block(Block&& other) noexcept { *this = std::move(other); }

Block& Block::operator=(Block&& other) noexcept {
  if (this == &other) return *this;
  release();
  context_ = other.context_;
  own_ = std::move(other.own_);
  allocated_ = std::exchange(other.allocated_, nullptr);
  whole_ = std::exchange(other.whole_, nullptr);
  whole_bytes_ = std::exchange(other.whole_bytes_, 0);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Block::~Block() { release(); }

void Block::release() {
  if (allocated_ != nullptr) kolo_free(context_, allocated_);
  allocated_ = nullptr;
}

bool Block::guards_hold() const {
  const auto is_guard = [](std::byte value) { return value == kGuard; };
  return std::all_of(whole_, data_, is_guard) &&
         std::all_of(data_ + bytes_, whole_ + whole_bytes_, is_guard);
}

}  // namespace kolo::programs
