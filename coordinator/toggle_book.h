// ToggleBook: the cached units by number, and what a toggle of one of them means. Pure state.
//
// Readiness is a level: per rank and id one parity, written by that rank alone and never cleared.
// A toggle counts when its parity differs from that of the last order in which the rank took part
// (a joined rank takes no part: its parity stays); heard again, it is stale.
//
// An evicted id is retired, not forgotten: a toggle that was on its way counts once per rank, as if
// the unit had been submitted in full. After kRetiredMax further evictions it is unknown.
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
  static constexpr std::size_t kRetiredMax = 8192;

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

  Answer hear(int rank, const Toggle& toggle);
  // Whether it is of the round that is not ordered yet. INTERNAL when it does not fit its unit.
  [[nodiscard]] Result<bool> counts(const Payload& payload) const;
  // Null when unknown.
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
  std::deque<std::uint64_t> retired_;  // oldest first
};

}  // namespace kolo::internal
