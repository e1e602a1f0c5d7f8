// SlotBoard: what the ranks of one host tell each other in shared memory about known units.
//
// A known unit of one host has a *slot*. A rank that submits it for the k-th time since it became
// known publishes the mark {id, k} in its own slot; nothing else is sent. There are two places by
// the parity of k, since a rank may publish k+1 (having finished k) before another one has read k.
//
//   inline units   (at most kPayloadBytesMax bytes) bring their bytes along: whoever sees the mark
//                  of all ranks has the result, and no order is needed. What needs agreement after
//                  all (a time limit, another signature) first *closes* the slot: is_closed().
//   ordered units  are announced to the leader too, which orders what all have published in the
//                  host's *log*. All ranks follow the log; it also says where the items stand
//                  that come by control frame (LogEntry::kItem).
//
// Every word has one writer: the rank whose memory it is in. The leader is rank 0 of the board.
//
// Pure memory: no waiting, no waking. Publishing by one thread at a time, everything else by the
// driver.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "coordinator/payload_book.h"

namespace kolo::internal {

// The k-th use of a unit. Ids are never used twice, so a mark of an earlier unit of the same slot
// does not look like one of this. Both numbers wrap around.
struct SlotMark {
  std::uint32_t id = 0;
  std::uint32_t round = 0;

  [[nodiscard]] std::uint64_t word() const { return std::uint64_t{id} << 32 | round; }
  static SlotMark of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
  bool operator==(const SlotMark&) const = default;
};

// Whether round `a` comes after round `b`.
constexpr bool is_later_round(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) > 0;
}

struct LogEntry {
  std::uint32_t id = 0;  // 0: an item that comes by control frame
  std::uint32_t slot = 0;
  bool ends_cut = true;  // the last unit of a fused operation
};

class SlotBoard {
 public:
  static constexpr std::uint32_t kSlotsMax = 16384;
  // Slots for a cache of that many units: a power of two.
  static std::uint32_t slots_for(std::size_t cache_capacity);
  // Of each rank's memory, which begins as zeroes.
  static std::size_t bytes(std::uint32_t slots);

  // `all[rank]`: the memory of every rank, own included; aligned to 64. It outlives the board.
  SlotBoard(std::uint32_t slots, int rank, std::byte* own, std::vector<const std::byte*> all);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(all_.size()); }
  [[nodiscard]] std::uint32_t slots() const { return slots_; }

  // ---- Every rank --------------------------------------------------------------------------
  void publish(std::uint32_t slot, SlotMark mark, std::span<const std::byte> payload = {});
  void announce(std::uint32_t slot, SlotMark mark);  // of an ordered unit, after publish()
  [[nodiscard]] bool shows(int rank, std::uint32_t slot, SlotMark mark) const {
    return slot_word(rank, slot, mark.round).load(std::memory_order_seq_cst) == mark.word();
  }
  // Of a mark that `rank` shows.
  [[nodiscard]] const std::byte* payload(int rank, std::uint32_t slot, SlotMark mark) const;
  // Whether the leader has closed the slot for this mark: then it does not complete here, although
  // all ranks show it, and the ordered stream says what becomes of it. To be asked after all marks
  // were seen: the leader closes first and looks at the marks then, and all these accesses are
  // sequentially consistent, so if it missed a mark, whoever sees that mark sees it closed.
  [[nodiscard]] bool is_closed(std::uint32_t slot, SlotMark mark) const;
  // The next entry of the host's log; the same until followed() says that it has been dealt with.
  [[nodiscard]] std::optional<LogEntry> next_entry() const;
  void followed();
  [[nodiscard]] std::uint64_t followed_count() const { return followed_; }
  // Whether the leader, were its log full, should be told that this rank has followed since
  // `before` (an earlier followed_count()).
  [[nodiscard]] bool has_made_room(std::uint64_t before) const {
    const std::uint64_t quarter = log_entries_ / 4;
    return followed_ / quarter != before / quarter;
  }
  [[nodiscard]] std::uint64_t log_end() const;  // entries that the leader has shown

  // ---- The leader --------------------------------------------------------------------------
  // `rank` is lost or has left: it follows nothing any more, and what it still announces is not
  // heard.
  void ignore(int rank) { ignored_[static_cast<std::size_t>(rank)] = true; }
  struct Announcement {
    std::uint32_t slot = 0;
    std::uint32_t id = 0;
  };
  std::optional<Announcement> next_announcement(int rank);
  // The last round of `id` that `rank` has published; 0 before the first.
  [[nodiscard]] std::uint32_t last_round(int rank, std::uint32_t slot, std::uint32_t id) const;
  void close(std::uint32_t slot, SlotMark from);
  // Entries that the log takes before some rank must have followed more of it.
  [[nodiscard]] std::size_t log_room() const;
  [[nodiscard]] std::uint64_t appended() const { return appended_; }  // entries ever
  [[nodiscard]] std::uint64_t followed_by_all() const;
  // Half of the log or more waits for some rank: then those that lag behind by that much are to be
  // woken, also if nothing in it concerns them, before there is no room.
  [[nodiscard]] bool log_fills() const { return log_room() <= log_entries_ / 2; }
  [[nodiscard]] bool is_laggard(int rank) const;
  void append(const LogEntry& entry);  // needs room; not seen before flush_log()
  bool flush_log();                    // true if there was anything to show

 private:
  using Word = std::atomic<std::uint64_t>;

  [[nodiscard]] const Word& word(int rank, std::size_t offset) const {
    return *reinterpret_cast<const Word*>(all_[static_cast<std::size_t>(rank)] + offset);
  }
  [[nodiscard]] Word& own_word(std::size_t offset) {
    return *reinterpret_cast<Word*>(own_ + offset);
  }
  [[nodiscard]] std::size_t slot_offset(std::uint32_t slot, std::uint32_t round) const;
  [[nodiscard]] const Word& slot_word(int rank, std::uint32_t slot, std::uint32_t round) const {
    return word(rank, slot_offset(slot, round));
  }

  std::uint32_t slots_;
  std::uint64_t log_entries_;  // of the log, and of the announcements
  int rank_;
  std::byte* own_;
  std::vector<const std::byte*> all_;
  std::uint64_t announced_ = 0;        // own announcements
  std::vector<std::uint64_t> taken_;   // leader: announcements read, by rank
  std::vector<bool> ignored_;          // leader: by rank
  std::uint64_t followed_ = 0;         // log entries
  std::uint64_t appended_ = 0;         // leader: log entries, shown or not
  mutable std::uint64_t slowest_ = 0;  // leader: what all had followed when it last looked
};

}  // namespace kolo::internal
