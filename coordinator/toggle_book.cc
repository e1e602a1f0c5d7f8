#include "coordinator/toggle_book.h"

#include <algorithm>

#include "base/check.h"

namespace kolo::internal {

void ToggleBook::introduce(std::uint64_t id, UnitPtr unit) {
  newest_ = std::max(newest_, id);
  const bool is_new = entries_.try_emplace(id, Entry{std::move(unit), false, {}, false, {}}).second;
  KOLO_CHECK(is_new);  // ids are never used twice
}

void ToggleBook::ordered(std::uint64_t id, const std::vector<int>& absent) {
  Entry& entry = entries_.at(id);
  entry.parity = !entry.parity;
  for (const int rank : absent) {
    if (!entry.behind.insert(rank).second) entry.behind.erase(rank);
  }
}

bool ToggleBook::ordered_parity(std::uint64_t id, int rank) const {
  const Entry& entry = entries_.at(id);
  return entry.parity != entry.behind.contains(rank);
}

void ToggleBook::retire(std::uint64_t id, const std::vector<int>& taken) {
  Entry& entry = entries_.at(id);
  KOLO_CHECK(!entry.retired);
  entry.retired = true;
  entry.taken.insert(taken.begin(), taken.end());
  retired_.push_back(id);
}

void ToggleBook::acknowledge(std::uint64_t evictions) {
  while (forgotten_ < evictions && !retired_.empty()) forget_oldest();
}

void ToggleBook::forget_oldest() {
  entries_.erase(retired_.front());
  retired_.pop_front();
  ++forgotten_;
}

ToggleBook::Answer ToggleBook::hear(int rank, const Toggle& toggle) {
  const auto it = entries_.find(toggle.id);
  if (it == entries_.end()) return Answer::kUnknown;
  Entry& entry = it->second;
  if (toggle.parity == ordered_parity(toggle.id, rank)) return Answer::kStale;
  if (!entry.retired) return Answer::kCounts;
  return entry.taken.insert(rank).second ? Answer::kCountsInFull : Answer::kStale;
}

Result<bool> ToggleBook::counts(const Payload& payload) const {
  if (!is_live(payload.id)) return false;
  const Unit& unit = *entries_.at(payload.id).unit;
  if (!payload_fits(unit, payload.rank, payload.bytes.size())) {
    return Status(StatusCode::kInternal, "a payload of rank " + std::to_string(payload.rank) +
                                             " that does not fit " + unit_text(unit) +
                                             ". All ranks must run the same kolo");
  }
  if (payload.parity == ordered_parity(payload.id, payload.rank)) return false;  // stale
  return true;
}

UnitPtr ToggleBook::unit_of(std::uint64_t id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : it->second.unit;
}

bool ToggleBook::is_live(std::uint64_t id) const {
  const auto it = entries_.find(id);
  return it != entries_.end() && !it->second.retired;
}

}  // namespace kolo::internal
