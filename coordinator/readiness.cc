#include "coordinator/readiness.h"

#include <algorithm>
#include <utility>

namespace kolo::internal {

bool PendingUnit::has(int rank) const {
  return std::binary_search(present.begin(), present.end(), rank);
}

std::vector<int> PendingUnit::present_by(std::uint64_t id) const {
  for (const Variant& variant : variants) {
    if (variant.id == id) return variant.ranks;
  }
  return {};
}

std::vector<int> PendingUnit::missing(const std::vector<int>& expected) const {
  std::vector<int> ranks;
  for (const int rank : expected) {
    if (!has(rank)) ranks.push_back(rank);
  }
  return ranks;
}

bool ReadinessTable::add(int rank, const UnitPtr& unit, std::uint64_t id, Nanos now) {
  auto [it, is_new] = pending_.try_emplace(unit->key);
  PendingUnit& pending = it->second;
  if (is_new) pending.first_seen = now;
  const auto place = std::lower_bound(pending.present.begin(), pending.present.end(), rank);
  if (place != pending.present.end() && *place == rank) return false;
  pending.present.insert(place, rank);
  for (Variant& variant : pending.variants) {
    if (variant.id == id && (variant.unit == unit || *variant.unit == *unit)) {
      variant.ranks.insert(std::upper_bound(variant.ranks.begin(), variant.ranks.end(), rank),
                           rank);
      return true;
    }
  }
  pending.variants.push_back({unit, id, {rank}});
  return true;
}

bool ReadinessTable::is_complete(const UnitKey& key, const std::vector<int>& expected) const {
  const auto it = pending_.find(key);
  if (it == pending_.end()) return false;
  return std::all_of(expected.begin(), expected.end(),
                     [&](int rank) { return it->second.has(rank); });
}

bool ReadinessTable::set_ready(const UnitKey& key) {
  return !std::exchange(pending_.at(key).ready, true);
}

std::optional<PendingUnit> ReadinessTable::take(const UnitKey& key) {
  const auto it = pending_.find(key);
  if (it == pending_.end()) return std::nullopt;
  PendingUnit pending = std::move(it->second);
  pending_.erase(it);
  return pending;
}

void ReadinessTable::forget_set(std::uint32_t process_set) {
  std::erase_if(pending_,
                [&](const auto& entry) { return entry.first.process_set == process_set; });
}

const PendingUnit* ReadinessTable::find(const UnitKey& key) const {
  const auto it = pending_.find(key);
  return it == pending_.end() ? nullptr : &it->second;
}

}  // namespace kolo::internal
