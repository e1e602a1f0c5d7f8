#include "transport/arena.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

namespace kolo::internal {
namespace {

constexpr std::size_t kPage = 4096;

using BlockMap = std::map<std::size_t, std::size_t>;  // offset in the arena -> bytes

}  // namespace

// Offsets count from `begin`, the first byte that was not carved. Memory stands behind everything
// below `committed`; used and free blocks together fill exactly that part.
struct Arena::Blocks {
  explicit Blocks(Window& of)
      : window(of), carved(of.carved()), begin(of.own() + carved), bytes(of.bytes() - carved) {}

  // The smallest free block that is large enough; end() if there is none.
  BlockMap::iterator best_fit(std::size_t wanted) {
    auto best = free.end();
    for (auto it = free.begin(); it != free.end(); ++it) {
      if (it->second >= wanted && (best == free.end() || it->second < best->second)) best = it;
    }
    return best;
  }

  // Moves the committed part's end up, so that a free block of `wanted` bytes ends there.
  Status grow(std::size_t wanted) {
    std::size_t start = committed;
    if (!free.empty()) {
      const auto last = std::prev(free.end());
      if (last->first + last->second == committed) start = last->first;
    }
    if (wanted > bytes - start) {
      return resource_error("no room for " + std::to_string(wanted) +
                            " more bytes in this rank's shared memory of " + std::to_string(bytes) +
                            " (" + std::to_string(in_use) +
                            " are in use). Free some of it or raise KOLO_SHM_BYTES");
    }
    KOLO_RETURN_IF_ERROR(window.commit(carved + committed, start + wanted - committed));
    committed = start + wanted;
    free[start] = wanted;
    return Status::ok();
  }

  void release(std::size_t offset, std::size_t size) {
    const auto next = free.lower_bound(offset);
    if (next != free.end() && offset + size == next->first) {
      size += next->second;
      free.erase(next);
    }
    const auto after = free.lower_bound(offset);
    if (after != free.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == offset) {
        before->second += size;
        return;
      }
    }
    free[offset] = size;
  }

  Window& window;
  const std::size_t carved;
  std::byte* const begin;
  const std::size_t bytes;

  mutable std::mutex mutex;  // guards the rest
  std::size_t committed = 0;
  std::size_t in_use = 0;
  BlockMap used;
  BlockMap free;
};

Arena::Arena(Window& window) : blocks_(std::make_unique<Blocks>(window)) {}
Arena::~Arena() = default;

Result<void*> Arena::allocate(std::size_t bytes) {
  if (bytes == 0) bytes = 1;
  const std::size_t wanted = (bytes + kPage - 1) / kPage * kPage;
  if (wanted < bytes) {
    return resource_error("no memory for " + std::to_string(bytes) + " bytes");
  }
  Blocks& blocks = *blocks_;
  const std::lock_guard lock(blocks.mutex);
  auto found = blocks.best_fit(wanted);
  if (found == blocks.free.end()) {
    KOLO_RETURN_IF_ERROR(blocks.grow(wanted));
    found = std::prev(blocks.free.end());
  }
  const auto [offset, size] = *found;
  blocks.free.erase(found);
  if (size > wanted) blocks.free[offset + wanted] = size - wanted;
  blocks.used[offset] = wanted;
  blocks.in_use += wanted;
  return static_cast<void*>(blocks.begin + offset);
}

Status Arena::free(void* memory) {
  Blocks& blocks = *blocks_;
  const std::size_t offset =
      reinterpret_cast<std::uintptr_t>(memory) - reinterpret_cast<std::uintptr_t>(blocks.begin);
  const std::lock_guard lock(blocks.mutex);
  const auto found = blocks.used.find(offset);
  if (found == blocks.used.end()) {
    return invalid_argument(
        "this address is not the start of memory that kolo gave, or it has been freed already");
  }
  const std::size_t size = found->second;
  blocks.used.erase(found);
  blocks.in_use -= size;
  blocks.release(offset, size);
  return Status::ok();
}

std::optional<std::size_t> Arena::offset_of(const void* memory, std::size_t bytes) const {
  const Blocks& blocks = *blocks_;
  // Ordinary memory ends here: below or above the arena, it is a large number.
  const std::size_t offset =
      reinterpret_cast<std::uintptr_t>(memory) - reinterpret_cast<std::uintptr_t>(blocks.begin);
  if (offset >= blocks.bytes) return std::nullopt;
  const std::lock_guard lock(blocks.mutex);
  const auto after = blocks.used.upper_bound(offset);
  if (after == blocks.used.begin()) return std::nullopt;
  const auto block = std::prev(after);
  const std::size_t within = offset - block->first;
  if (within >= block->second || bytes > block->second - within) return std::nullopt;
  return blocks.carved + offset;
}

}  // namespace kolo::internal
