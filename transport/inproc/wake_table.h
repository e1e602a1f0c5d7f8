// WakeTable: one callback per rank, safely removable while other threads wake. Shared by the
// in-memory channels and control links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace kolo::internal {

class WakeTable {
 public:
  explicit WakeTable(int size) : entries_(static_cast<std::size_t>(size)) {}

  // After it returns, the callback that was there before is not running and never will again.
  void set(int rank, std::function<void()> wake) {
    Entry& entry = entries_[static_cast<std::size_t>(rank)];
    const std::lock_guard lock(entry.mutex);
    entry.wake = std::move(wake);
  }
  void wake(int rank) {
    Entry& entry = entries_[static_cast<std::size_t>(rank)];
    const std::lock_guard lock(entry.mutex);
    if (entry.wake) entry.wake();
  }

 private:
  struct Entry {
    std::mutex mutex;
    std::function<void()> wake;
  };
  std::vector<Entry> entries_;
};

// A small seeded generator (splitmix64): the same numbers everywhere.
class InprocRandom {
 public:
  explicit InprocRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

}  // namespace kolo::internal
