// ReadinessTable: which ranks have submitted which unit, and in which variants. Pure state.
//
// Facts are levels: telling it the same thing twice changes nothing.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "coordinator/unit.h"

namespace kolo::internal {

struct Variant {
  UnitPtr unit;
  std::uint64_t id = 0;    // the cached id by which it was submitted; 0: in full
  std::vector<int> ranks;  // ascending
};

struct PendingUnit {
  std::vector<Variant> variants;
  std::vector<int> present;  // the ranks of all variants, ascending
  Nanos first_seen{0};
  bool ready = false;  // complete, and about to be ordered

  [[nodiscard]] bool has(int rank) const;
  [[nodiscard]] std::vector<int> present_by(std::uint64_t id) const;
  [[nodiscard]] std::vector<int> missing(const std::vector<int>& expected) const;
};

class ReadinessTable {
 public:
  // False if the rank had already submitted this unit.
  bool add(int rank, const UnitPtr& unit, std::uint64_t id, Nanos now);
  // All of `expected` are present, and at least one is.
  [[nodiscard]] bool is_complete(const UnitKey& key, const std::vector<int>& expected) const;
  // True the first time: it stays in the table until taken, so that facts heard again are levels.
  bool set_ready(const UnitKey& key);
  std::optional<PendingUnit> take(const UnitKey& key);
  void forget_set(std::uint32_t process_set);
  [[nodiscard]] const PendingUnit* find(const UnitKey& key) const;
  [[nodiscard]] const std::map<UnitKey, PendingUnit>& all() const { return pending_; }

 private:
  std::map<UnitKey, PendingUnit> pending_;
};

}  // namespace kolo::internal
