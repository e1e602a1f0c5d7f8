// ToggleBook: the cached units by number, and what a toggle of one of them means. Pure state.
//
// Readiness is a level: per rank and id one parity, written by that rank alone and never cleared.
// A toggle counts when its parity differs from that of the last order in which the rank took part
// (a joined rank takes no part: its parity stays); heard again, it is stale.
//
// An evicted id is retired, not forgotten: a toggle that was on its way counts once per rank, as if
// the unit had been submitted in full. It is forgotten when every rank has followed its eviction:
// no toggle of it comes after that word, but what is heard again.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <unordered_map>
#include <vector>

#include "coordinator/frame.h"

namespace kolo::internal {

class ToggleBook {
 public:
  enum class Answer {
    kCounts,        // the rank has submitted the unit, by its id
    kCountsInFull,  // the same, of a retired id
    kStale,         // nothing new
    kUnknown,       // no such id: the peer breaks the protocol
  };

  void introduce(std::uint64_t id, UnitPtr unit);                  // parity starts at false
  void ordered(std::uint64_t id, const std::vector<int>& absent);  // flips the others' parity
  // `taken`: ranks whose toggle of this id has been counted since it was last ordered.
  void retire(std::uint64_t id, const std::vector<int>& taken);
  // An eviction of what had a slot: counts, and leaves nothing here.
  void retire_slot() { retired_.push_back(0); }
  // All ranks have followed the first `evictions` of this sequencer.
  void acknowledge(std::uint64_t evictions);

  Answer hear(int rank, const Toggle& toggle);
  // Whether it is of the round that is not ordered yet. INTERNAL when it does not fit its unit.
  [[nodiscard]] Result<bool> counts(const Payload& payload) const;
  // Whether there was such an id, now forgotten: what is said of it is said again.
  [[nodiscard]] bool is_past(std::uint64_t id) const {
    return id <= newest_ && !entries_.contains(id);
  }
  // Null when unknown, or forgotten.
  [[nodiscard]] UnitPtr unit_of(std::uint64_t id) const;
  [[nodiscard]] bool is_live(std::uint64_t id) const;
  [[nodiscard]] bool ordered_parity(std::uint64_t id, int rank) const;

 private:
  struct Entry {
    UnitPtr unit;
    bool parity = false;
    std::set<int> behind;  // ranks whose parity is the other one, after odd absences
    bool retired = false;
    std::set<int> taken;  // once retired
  };
  std::unordered_map<std::uint64_t, Entry> entries_;
  void forget_oldest();

  std::deque<std::uint64_t> retired_;  // oldest first; 0: had a slot
  std::uint64_t newest_ = 0;           // id ever introduced
  std::uint64_t forgotten_ = 0;        // how many were before these
};

}  // namespace kolo::internal
