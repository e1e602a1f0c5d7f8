#include "coordinator/leader.h"

#include <algorithm>

namespace kolo::internal {

std::vector<int> Leader::local_ranks(std::uint32_t process_set) const {
  std::vector<int> ranks = topology_.ranks_of_set(process_set);
  std::erase_if(ranks, [this](int rank) { return topology_.host_of(rank) != host_; });
  return ranks;
}

void Leader::add(std::span<const int> ranks, const UnitPtr& unit, Nanos now) {
  if (streaming_.contains(unit->key)) {
    report_.facts.push_back({unit, 0, false, {ranks.begin(), ranks.end()}});
    return;
  }
  for (const int rank : ranks) table_.add(rank, unit, 0, now);
  check_complete(unit->key);
}

Status Leader::add_toggle(int rank, Toggle toggle, Nanos now) {
  const UnitPtr unit = toggles_.unit_of(toggle.id);
  const int self[] = {rank};
  switch (toggles_.hear(rank, toggle)) {
    case ToggleBook::Answer::kStale: break;
    case ToggleBook::Answer::kCountsInFull: add(self, unit, now); break;
    case ToggleBook::Answer::kCounts:
      if (streaming_.contains(unit->key)) {
        report_.facts.push_back({nullptr, toggle.id, toggle.parity, {rank}});
      } else {
        table_.add(rank, unit, toggle.id, now);
        check_complete(unit->key);
      }
      break;
    case ToggleBook::Answer::kUnknown:
      return {StatusCode::kInternal, "a report of unknown id " + std::to_string(toggle.id) +
                                         ". All ranks must run the same kolo"};
  }
  return Status::ok();
}

void Leader::check_complete(const UnitKey& key) {
  std::vector<int> expected = local_ranks(key.process_set);
  const auto joined = joined_.find(key.process_set);
  if (joined != joined_.end()) {
    std::erase_if(expected, [&](int rank) { return joined->second.contains(rank); });
  }
  if (!table_.is_complete(key, expected)) return;
  forward(*table_.take(key));
}

void Leader::forward(const PendingUnit& pending) {
  for (const Variant& variant : pending.variants) {
    if (variant.id == 0 || !toggles_.is_live(variant.id)) {
      report_.facts.push_back({variant.unit, 0, false, variant.ranks});
      continue;
    }
    const bool parity = !toggles_.ordered_parity(variant.id);
    if (variant.ranks == local_ranks(variant.unit->key.process_set)) {
      report_.toggles.push_back({variant.id, parity});
    } else {
      report_.facts.push_back({nullptr, variant.id, parity, variant.ranks});
    }
  }
}

// Tells what is known of a unit so far; the rest follows as it comes.
void Leader::stream(const UnitKey& key) {
  if (const auto pending = table_.take(key)) forward(*pending);
  streaming_.insert(key);
}

void Leader::add_joined(std::uint32_t process_set, int rank) {
  std::vector<UnitKey> of_this_rank;
  std::vector<UnitKey> of_the_set;
  for (const auto& [key, pending] : table_.all()) {
    if (key.process_set != process_set) continue;
    (pending.has(rank) ? of_this_rank : of_the_set).push_back(key);
  }
  for (const UnitKey& key : of_this_rank) stream(key);  // before the word that it has joined
  joined_[process_set].insert(rank);
  for (const UnitKey& key : of_the_set) check_complete(key);
  report_.joined.push_back({process_set, rank});
}

void Leader::expire(const UnitKey& key, int rank) {
  stream(key);
  report_.expired.push_back({key, rank});
}

void Leader::tick(Nanos now) {
  if (patience_ == kNever) return;
  std::vector<UnitKey> late;
  for (const auto& [key, pending] : table_.all()) {
    if (now - pending.first_seen >= patience_) late.push_back(key);
  }
  for (const UnitKey& key : late) stream(key);
}

Nanos Leader::next_deadline() const {
  Nanos next = kNever;
  if (patience_ == kNever) return next;
  for (const auto& [key, pending] : table_.all()) {
    next = std::min(next, pending.first_seen + patience_);
  }
  return next;
}

void Leader::observe(const Item& item) {
  if (const auto* run = std::get_if<Run>(&item)) {
    for (const UnitOrder& order : run->units) {
      UnitPtr unit = order.unit;
      if (order.id != 0) {
        if (order.first_sight) toggles_.introduce(order.id, order.unit);
        toggles_.ordered(order.id);
        unit = toggles_.unit_of(order.id);
      }
      streaming_.erase(unit->key);
    }
  } else if (const auto* failure = std::get_if<Failure>(&item)) {
    streaming_.erase(failure->key);
  } else if (const auto* evict = std::get_if<Evict>(&item)) {
    const PendingUnit* pending = table_.find(toggles_.unit_of(evict->id)->key);
    toggles_.retire(evict->id, pending == nullptr ? std::vector<int>{}
                                                  : pending->present_by(evict->id));
  } else if (const auto* done = std::get_if<JoinDone>(&item)) {
    joined_.erase(done->process_set);
  }
}

}  // namespace kolo::internal
