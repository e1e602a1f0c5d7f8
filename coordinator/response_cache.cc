#include "coordinator/response_cache.h"

#include "base/check.h"

namespace kolo::internal {

const ResponseCache::Cached* ResponseCache::find(const UnitKey& key) const {
  const auto it = by_key_.find(key);
  return it == by_key_.end() ? nullptr : &*it->second;
}

const ResponseCache::Cached& ResponseCache::insert(UnitPtr unit) {
  KOLO_CHECK(!by_key_.contains(unit->key));
  const std::uint64_t id = next_++ << 1 | (host_ids_ ? 1 : 0);
  order_.push_front({id, std::move(unit)});
  by_id_[id] = order_.begin();
  by_key_[order_.front().unit->key] = order_.begin();
  return order_.front();
}

void ResponseCache::touch(std::uint64_t id) {
  order_.splice(order_.begin(), order_, by_id_.at(id));
}

void ResponseCache::erase(std::uint64_t id) {
  const auto it = by_id_.find(id);
  KOLO_CHECK(it != by_id_.end());
  by_key_.erase(it->second->unit->key);
  order_.erase(it->second);
  by_id_.erase(it);
}

std::optional<ResponseCache::Cached> ResponseCache::victim() const {
  if (order_.size() <= capacity_) return std::nullopt;
  return order_.back();
}

std::vector<ResponseCache::Cached> ResponseCache::of_set(std::uint32_t process_set) const {
  std::vector<Cached> cached;
  for (auto it = by_key_.lower_bound({process_set, {}});
       it != by_key_.end() && it->first.process_set == process_set; ++it) {
    cached.push_back(*it->second);
  }
  return cached;
}

}  // namespace kolo::internal
