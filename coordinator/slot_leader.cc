#include "coordinator/slot_leader.h"

#include <algorithm>

#include "base/check.h"

namespace kolo::internal {

SlotLeader::SlotLeader(const Topology& topology, int host, SlotBoard& board,
                       const FusionOptions& fusion, Nanos patience)
    : rank_of_(topology.ranks_of_host(host)),
      topology_(topology),
      board_(board),
      planner_(fusion),
      patience_(patience) {
  KOLO_CHECK(static_cast<int>(rank_of_.size()) == board.size() && board.rank() == 0);
}

std::optional<std::uint32_t> SlotLeader::take_slot() {
  if (!closed_.empty() && closed_.front().log_place &&
      board_.followed_by_all() >= *closed_.front().log_place) {
    free_.push_back(closed_.front().slot);
    closed_.pop_front();
  }
  if (!free_.empty()) {
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  if (entries_.size() == board_.slots()) return std::nullopt;
  entries_.emplace_back();
  return static_cast<std::uint32_t>(entries_.size() - 1);
}

std::optional<std::uint32_t> SlotLeader::introduce(std::uint64_t id, const UnitPtr& unit,
                                                   bool inlined) {
  const auto slot = take_slot();
  if (!slot) return std::nullopt;
  Entry& entry = entries_[*slot];
  entry = {};
  entry.id = id;
  entry.unit = unit;
  for (const int rank : topology_.ranks_of_set(unit->key.process_set)) {
    const auto place = std::find(rank_of_.begin(), rank_of_.end(), rank);
    KOLO_CHECK(place != rank_of_.end());
    entry.members.push_back(static_cast<int>(place - rank_of_.begin()));
  }
  entry.is_inline = inlined;
  entry.fusion = fusion_item(unit->key.process_set, unit->tensors.front());
  entry.fusion.fusible = entry.fusion.fusible && !unit->group;
  slot_of_[id] = *slot;
  return slot;
}

std::vector<std::uint64_t> SlotLeader::ids_of_set(std::uint32_t process_set) const {
  std::vector<std::uint64_t> ids;
  for (const Entry& entry : entries_) {
    if (entry.id != 0 && entry.unit->key.process_set == process_set) ids.push_back(entry.id);
  }
  return ids;
}

// The round that some may have submitted, and not all have finished.
std::uint32_t SlotLeader::open_round(std::uint32_t slot, const Entry& entry) const {
  if (!entry.is_inline) return entry.round + 1;
  std::uint32_t latest = 0;
  bool all_at_latest = true;
  bool first = true;
  for (const int member : entry.members) {
    const std::uint32_t round = board_.last_round(member, slot, mark_id(entry.id));
    if (!first && round != latest) all_at_latest = false;
    if (first || is_later_round(round, latest)) latest = round;
    first = false;
  }
  return all_at_latest ? latest + 1 : latest;
}

std::vector<int> SlotLeader::at_round(std::uint32_t slot, const Entry& entry,
                                      std::uint32_t round) const {
  std::vector<int> ranks;
  for (const int member : entry.members) {
    if (!board_.shows(member, slot, {mark_id(entry.id), round})) continue;
    ranks.push_back(rank_of_[static_cast<std::size_t>(member)]);
  }
  return ranks;
}

// Closes from a round that not all have published: those before it complete as ever. Ranks pass
// rounds meanwhile, but none that is closed.
std::uint32_t SlotLeader::close_inline(std::uint32_t slot, const Entry& entry) {
  while (true) {
    const std::uint32_t round = open_round(slot, entry);
    board_.close(slot, {mark_id(entry.id), round});
    if (open_round(slot, entry) == round) return round;
  }
}

std::vector<int> SlotLeader::close(std::uint64_t id) {
  const auto found = slot_of_.find(id);
  KOLO_CHECK(found != slot_of_.end());
  const std::uint32_t slot = found->second;
  Entry& entry = entries_[slot];
  const std::uint32_t round = entry.is_inline ? close_inline(slot, entry) : entry.round + 1;
  if (!entry.is_inline) board_.close(slot, {mark_id(id), round});
  std::vector<int> taken = at_round(slot, entry, round);
  std::erase(ready_, slot);
  slot_of_.erase(found);
  entry = {};
  closed_.push_back({id, slot, std::nullopt});
  return taken;
}

void SlotLeader::closed_in_log(std::uint64_t id) {
  const auto closed =
      std::find_if(closed_.begin(), closed_.end(), [&](const Closed& one) { return one.id == id; });
  if (closed != closed_.end()) closed->log_place = board_.appended();
}

void SlotLeader::forget_set(std::uint32_t process_set) {
  std::erase_if(ready_, [&](std::uint32_t slot) {
    return entries_[slot].unit->key.process_set == process_set;
  });
}

bool SlotLeader::waits(std::uint64_t id, int rank, SlotMark mark) const {
  const auto found = slot_of_.find(id);
  if (found == slot_of_.end() || mark_id(id) != mark.id) return false;
  const Entry& entry = entries_[found->second];
  const std::uint32_t round = open_round(found->second, entry);
  if (round != mark.round) return false;
  const auto ranks = at_round(found->second, entry, round);
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

bool SlotLeader::used_since(std::uint64_t id) {
  const auto found = slot_of_.find(id);
  if (found == slot_of_.end()) return false;
  Entry& entry = entries_[found->second];
  const std::uint32_t round = open_round(found->second, entry);
  const bool used = round != entry.used_round;
  entry.used_round = round;
  return used;
}

bool SlotLeader::collect(Nanos now) {
  bool any = false;
  for (int rank = 0; rank < board_.size(); ++rank) {
    while (const auto announcement = board_.next_announcement(rank)) {
      any = true;
      if (announcement->slot >= entries_.size()) continue;
      Entry& entry = entries_[announcement->slot];
      if (entry.id == 0 || mark_id(entry.id) != announcement->id) continue;  // closed meanwhile
      if (topology_.is_closed(entry.unit->key.process_set)) continue;
      if (entry.announced == 0) entry.since = now;
      if (++entry.announced == entry.members.size()) ready_.push_back(announcement->slot);
    }
  }
  return any;
}

bool SlotLeader::order() {
  if (ready_.empty() || board_.log_room() < ready_.size()) return false;
  items_.clear();
  for (const std::uint32_t slot : ready_) items_.push_back(entries_[slot].fusion);
  const auto cut_of = planner_.assign(items_);
  // The units of a cut, next to each other: count, then place.
  places_.assign(planner_.cuts() + 1, 0);
  for (const std::uint32_t cut : cut_of) ++places_[cut + 1];
  for (std::size_t cut = 1; cut < places_.size(); ++cut) places_[cut] += places_[cut - 1];
  sorted_.resize(ready_.size());
  for (std::size_t i = 0; i < ready_.size(); ++i)
    sorted_[places_[cut_of[i]]++] = {ready_[i], cut_of[i]};
  for (std::size_t i = 0; i < sorted_.size(); ++i) {
    const auto [slot, cut] = sorted_[i];
    Entry& entry = entries_[slot];
    ++entry.round;
    entry.announced = 0;
    const bool ends_cut = i + 1 == sorted_.size() || sorted_[i + 1].cut != cut;
    board_.append({mark_id(entry.id), slot, ends_cut});
  }
  ready_.clear();
  return true;
}

std::vector<LateUnit> SlotLeader::late(Nanos now) {
  std::vector<LateUnit> late;
  next_look_ = patience_ == kNever ? kNever : now + patience_;
  for (std::uint32_t slot = 0; slot < entries_.size(); ++slot) {
    Entry& entry = entries_[slot];
    if (entry.id == 0 || (!entry.is_inline && entry.announced == 0)) continue;
    if (topology_.is_closed(entry.unit->key.process_set)) continue;
    const std::uint32_t round = open_round(slot, entry);
    const std::vector<int> present = at_round(slot, entry, round);
    if (present.empty() || present.size() == entry.members.size()) continue;
    if (entry.is_inline && entry.late_round != round) {
      entry.late_round = round;
      entry.since = now;
    }
    LateUnit unit{entry.unit, entry.since, {}};
    for (const int member : entry.members) {
      const int rank = rank_of_[static_cast<std::size_t>(member)];
      if (std::find(present.begin(), present.end(), rank) == present.end()) {
        unit.missing.push_back(rank);
      }
    }
    late.push_back(std::move(unit));
  }
  return late;
}

}  // namespace kolo::internal
