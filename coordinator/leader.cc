#include "coordinator/leader.h"

#include <algorithm>

namespace kolo::internal {
namespace {

constexpr std::size_t kMaxStreaming = 4096;

}  // namespace

std::vector<int> Leader::local_ranks(std::uint32_t process_set) const {
  std::vector<int> ranks = topology_.ranks_of_set(process_set);
  std::erase_if(ranks, [this](int rank) { return topology_.host_of(rank) != host_; });
  return ranks;
}

bool Leader::is_told(int rank, const UnitKey& key) const {
  const auto told = told_.find(key);
  return told != told_.end() && told->second.contains(rank);
}

void Leader::add(std::span<const int> ranks, const UnitPtr& unit, Nanos now) {
  for (const int rank : ranks) add_one(rank, unit, 0, now);
}

Status Leader::add_toggle(int rank, Toggle toggle, Nanos now) {
  if (toggles_.is_past(toggle.id)) return Status::ok();
  const UnitPtr unit = toggles_.unit_of(toggle.id);
  if (unit != nullptr && topology_.is_over(unit->key.process_set)) return Status::ok();
  if (unit == nullptr || !topology_.in_set(unit->key.process_set, rank)) {
    return {StatusCode::kInternal, "a report of unknown id " + std::to_string(toggle.id) +
                                       ". All ranks must run the same kolo"};
  }
  switch (toggles_.hear(rank, toggle)) {
    case ToggleBook::Answer::kCounts: add_one(rank, unit, toggle.id, now); break;
    case ToggleBook::Answer::kCountsInFull: add_one(rank, unit, 0, now); break;
    case ToggleBook::Answer::kStale:
    case ToggleBook::Answer::kUnknown: break;
  }
  return Status::ok();
}

Status Leader::add_payload(Payload payload) {
  const Result<bool> counts = toggles_.counts(payload);
  if (!counts) return counts.status();
  if (*counts) report_.payloads.push_back(std::move(payload));
  return Status::ok();
}

void Leader::add_one(int rank, const UnitPtr& unit, std::uint64_t id, Nanos now) {
  const UnitKey& key = unit->key;
  if (is_told(rank, key)) return;
  // The word that an earlier submission has expired must not meet this one.
  std::erase_if(report_.expired,
                [&](const Expiry& expiry) { return expiry.rank == rank && expiry.key == key; });
  if (streaming_.contains(key)) {
    tell({unit, id, {rank}});
    return;
  }
  table_.add(rank, unit, id, now);
  check_complete(key);
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
  for (const Variant& variant : pending.variants) tell(variant);
}

void Leader::tell(const Variant& variant) {
  const UnitKey& key = variant.unit->key;
  told_[key].insert(variant.ranks.begin(), variant.ranks.end());
  if (variant.id == 0 || !toggles_.is_live(variant.id)) {
    report_.facts.push_back({variant.unit, 0, false, variant.ranks});
    return;
  }
  for (const bool parity : {false, true}) {
    std::vector<int> ranks = variant.ranks;
    std::erase_if(ranks,
                  [&](int rank) { return toggles_.ordered_parity(variant.id, rank) == parity; });
    if (ranks.empty()) continue;
    if (ranks == local_ranks(key.process_set)) {
      report_.toggles.push_back({variant.id, parity});
    } else {
      report_.facts.push_back({nullptr, variant.id, parity, std::move(ranks)});
    }
  }
}

// Tells what is known of a unit so far; the rest follows as it comes.
void Leader::stream(const UnitKey& key) {
  if (const auto pending = table_.take(key)) forward(*pending);
  if (streaming_.insert(key).second) streaming_order_.push_back(key);
  while (streaming_order_.size() > kMaxStreaming) {
    streaming_.erase(streaming_order_.front());
    streaming_order_.pop_front();
  }
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
  report_.expired.push_back({key, rank, 0});
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
        toggles_.ordered(order.id, order.absent);
        unit = toggles_.unit_of(order.id);
      }
      streaming_.erase(unit->key);
      told_.erase(unit->key);
      if (const std::uint32_t ended = ended_set(*unit); ended != 0) forget_set(ended);
    }
  } else if (const auto* failure = std::get_if<Failure>(&item)) {
    forget(*failure);
  } else if (const auto* evict = std::get_if<Evict>(&item)) {
    const UnitKey& key = toggles_.unit_of(evict->id)->key;
    const PendingUnit* pending = table_.find(key);
    std::vector<int> taken =
        pending == nullptr ? std::vector<int>{} : pending->present_by(evict->id);
    if (const auto told = told_.find(key); told != told_.end()) {
      taken.insert(taken.end(), told->second.begin(), told->second.end());
    }
    toggles_.retire(evict->id, taken);
  } else if (const auto* done = std::get_if<JoinDone>(&item)) {
    joined_.erase(done->process_set);
  }
}

void Leader::forget_set(std::uint32_t process_set) {
  const auto is_of_set = [&](const UnitKey& key) { return key.process_set == process_set; };
  table_.forget_set(process_set);
  std::erase_if(streaming_, is_of_set);
  std::erase_if(told_, [&](const auto& told) { return is_of_set(told.first); });
  joined_.erase(process_set);
}

// The unit has failed on some ranks: what the others of this host submit, or have submitted, of it
// goes to the root at once.
void Leader::forget(const Failure& failure) {
  const UnitKey& key = failure.key;
  streaming_.erase(key);  // unless some are late
  if (const auto told = told_.find(key); told != told_.end()) {
    for (const int rank : failure.ranks) told->second.erase(rank);
    if (told->second.empty()) told_.erase(told);
  }
  if (topology_.is_closed(key.process_set)) return;
  std::vector<int> late = local_ranks(key.process_set);
  std::erase_if(late, [&](int rank) {
    return joined_[key.process_set].contains(rank) ||
           std::find(failure.ranks.begin(), failure.ranks.end(), rank) != failure.ranks.end();
  });
  if (!late.empty()) stream(key);
}

}  // namespace kolo::internal
