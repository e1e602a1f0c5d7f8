#include "ops/cuda/counter_pool.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "base/check.h"

namespace kolo::internal::cuda {
namespace {

constexpr std::size_t kBlock = 16;  // counters: 128 bytes
constexpr std::size_t kLeastBlocks = 512;

std::size_t blocks_of(std::size_t count) {
  return std::max<std::size_t>((count + kBlock - 1) / kBlock, 1);
}

}  // namespace

// Null: there is none.
unsigned long long* CounterPool::find_room(Chunk& chunk, std::size_t blocks) {
  std::size_t run = 0;
  for (std::size_t i = 0; i < chunk.used.size(); ++i) {
    run = chunk.used[i] ? 0 : run + 1;
    if (run < blocks) continue;
    const std::size_t first = i + 1 - blocks;
    std::fill_n(chunk.used.begin() + static_cast<std::ptrdiff_t>(first), blocks, true);
    return chunk.begin() + first * kBlock;
  }
  return nullptr;
}

Result<unsigned long long*> CounterPool::take(std::size_t count) {
  const std::size_t blocks = blocks_of(count);
  const std::lock_guard lock(mutex_);
  unsigned long long* found = nullptr;
  for (Chunk& chunk : chunks_) {
    if ((found = find_room(chunk, blocks)) != nullptr) break;
  }
  if (found == nullptr) {
    const std::size_t all = std::max(blocks, kLeastBlocks);
    auto memory = PinnedBuffer::create(runtime_, all * kBlock * sizeof(unsigned long long));
    if (!memory) return memory.status();
    chunks_.push_back({*std::move(memory), std::vector<bool>(all)});
    found = find_room(chunks_.back(), blocks);
  }
  std::memset(found, 0, count * sizeof(unsigned long long));
  return found;
}

void CounterPool::give_back(unsigned long long* counters, std::size_t count) {
  const std::lock_guard lock(mutex_);
  for (Chunk& chunk : chunks_) {
    const std::less<> before;
    const unsigned long long* const end = chunk.begin() + chunk.used.size() * kBlock;
    if (before(counters, chunk.begin()) || !before(counters, end)) continue;
    const auto first = (counters - chunk.begin()) / static_cast<std::ptrdiff_t>(kBlock);
    std::fill_n(chunk.used.begin() + first, blocks_of(count), false);
    return;
  }
  KOLO_CHECK(false);
}

void CounterPool::clear() {
  const std::lock_guard lock(mutex_);
  chunks_.clear();
}

}  // namespace kolo::internal::cuda
