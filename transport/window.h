// Window: memory that the ranks of one host share. Every rank has one segment, which it alone
// writes and all others read, so no rank can harm another one's data, and no lock is needed: words
// have one writer.
//
// A segment begins with areas that every rank carves alike at the start (so an offset means the
// same in all segments); the rest is for an Arena.
//
// Waking: who has stored something that `peer` may be waiting for calls ring(peer). The store is
// sequentially consistent, and a rank that goes to sleep first says so with set_asleep(true), then
// looks once more, then sleeps on bell(): so at least one of the two sees the other.
//
// Threads: carve(), reserve() and set_asleep() by one thread at a time; the rest by any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transport/witness.h"

namespace kolo::internal {

inline constexpr std::size_t kCacheLineBytes = 64;

// Counted where it happens; never reset.
struct WindowCounters {
  std::atomic<std::uint64_t> rings{0};  // wake-ups sent: system calls
};

class Window : public Witness {
 public:
  // The first pages of every segment are the window's own. Their first word says "asleep", and
  // behind it stands the word of leave_word().
  static constexpr std::size_t kHeaderBytes = 12288;
  static constexpr std::size_t kLeftWordOffset = 8;

  [[nodiscard]] int rank() const { return rank_; }  // place among the ranks of the window
  [[nodiscard]] int size() const { return static_cast<int>(segments_.size()); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  // of every segment
  [[nodiscard]] std::byte* own() { return own_; }
  // Read only, but for this rank's own.
  [[nodiscard]] const std::byte* of(int rank) const {
    return segments_[static_cast<std::size_t>(rank)];
  }
  // A word of `rank`'s segment. Only the owner may store.
  template <typename T>
  [[nodiscard]] const std::atomic<T>& word(int rank, std::size_t offset) const {
    return *reinterpret_cast<const std::atomic<T>*>(of(rank) + offset);
  }
  template <typename T>
  [[nodiscard]] std::atomic<T>& own_word(std::size_t offset) {
    return *reinterpret_cast<std::atomic<T>*>(own_ + offset);
  }

  // The next area of that many zeroed bytes in every segment, aligned to a page; memory stands
  // behind it. Every rank makes the same calls. RESOURCE: out of memory, or the segment is full.
  Result<std::size_t> carve(std::size_t bytes);
  // The same without memory: every rank commits it before the first one uses it.
  Result<std::size_t> reserve(std::size_t bytes);
  [[nodiscard]] std::size_t carved() const { return carved_; }  // and reserved
  // Maps an area that all ranks have committed, so that first use costs no page faults. Only a
  // kindness; it may do nothing.
  void map_area(std::size_t offset, std::size_t bytes);
  // The same for all that has been carved, but not reserved.
  void map_carved();
  // Puts memory behind a part of this rank's own segment, so that no access to it can fail.
  virtual Status commit(std::size_t offset, std::size_t bytes) = 0;

  void ring(int peer) {
    if (peer != rank_ && asleep(peer).load() != 0) wake(peer);
  }
  void ring_all() {
    for (int peer = 0; peer < size(); ++peer) ring(peer);
  }
  // Rings even if `peer` has not said that it sleeps.
  void wake_up(int peer) { wake(peer); }
  void set_asleep(bool asleep) { own_word<std::uint32_t>(0).store(asleep ? 1 : 0); }
  // Witness. Its bell is the one that others ring.
  [[nodiscard]] bool is_lost(int peer) const override { return lost() == peer; }
  void leave_word(std::uint64_t word) final {
    auto& own = own_word<std::uint64_t>(kLeftWordOffset);
    if (own.load(std::memory_order_relaxed) == 0) own.store(word);
  }
  [[nodiscard]] std::uint64_t word_left_by(int peer) const final {
    return word<std::uint64_t>(peer, kLeftWordOffset).load();
  }

  [[nodiscard]] const WindowCounters& counters() const { return counters_; }

 protected:
  // The first `taken` bytes are not for areas.
  Window(int rank, std::size_t bytes, std::byte* own, std::vector<const std::byte*> segments,
         std::size_t taken = kHeaderBytes)
      : rank_(rank), bytes_(bytes), own_(own), segments_(std::move(segments)), carved_(taken) {}
  virtual void wake(int peer) = 0;  // writes to its bell and counts

  WindowCounters counters_;

 private:
  [[nodiscard]] const std::atomic<std::uint32_t>& asleep(int rank) const {
    return word<std::uint32_t>(rank, 0);
  }

  int rank_;
  std::size_t bytes_;
  std::byte* own_;
  std::vector<const std::byte*> segments_;
  std::size_t carved_;
  struct Area {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  std::vector<Area> areas_;  // with memory
};

}  // namespace kolo::internal
