#include "coordinator/sequencer.h"

#include <algorithm>

#include "base/check.h"
#include "coordinator/mismatch.h"
#include "coordinator/personal_counts.h"
#include "coordinator/placement.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kMaxOwed = 4096;

}  // namespace

std::vector<int> Sequencer::expected_ranks(std::uint32_t process_set) const {
  std::vector<int> expected = topology_.ranks_of_set(process_set);
  const auto joined = joined_.find(process_set);
  if (joined != joined_.end()) {
    std::erase_if(expected, [&](int rank) { return joined->second.contains(rank); });
  }
  return expected;
}

void Sequencer::add(std::span<const int> ranks, const UnitPtr& unit, Nanos now) {
  if (topology_.is_over(unit->key.process_set)) return;
  if (const auto* cached = with_slot(unit->key)) close_slot(*cached, failures_, now);
  for (const int rank : ranks) add_one(rank, unit, 0, now);
  check_complete(unit->key);
}

Status Sequencer::add_toggle(std::span<const int> ranks, Toggle toggle, Nanos now) {
  if (toggles_.is_past(toggle.id)) return Status::ok();
  const UnitPtr unit = toggles_.unit_of(toggle.id);
  if (unit != nullptr && topology_.is_over(unit->key.process_set)) return Status::ok();
  if (unit == nullptr) {
    return {StatusCode::kInternal, "a report of unknown id " + std::to_string(toggle.id) +
                                       ". All ranks must run the same kolo"};
  }
  for (const int rank : ranks) {
    if (!topology_.in_set(unit->key.process_set, rank)) {
      return {StatusCode::kInternal, "a report of " + unit_text(*unit) + " by rank " +
                                         std::to_string(rank) + ", which is not of its set"};
    }
    switch (toggles_.hear(rank, toggle)) {
      case ToggleBook::Answer::kCounts: add_one(rank, unit, toggle.id, now); break;
      case ToggleBook::Answer::kCountsInFull: add_one(rank, unit, 0, now); break;
      case ToggleBook::Answer::kStale:
      case ToggleBook::Answer::kUnknown: break;
    }
  }
  check_complete(unit->key);
  return Status::ok();
}

Status Sequencer::add_host_toggle(int host, Toggle toggle, Nanos now) {
  std::vector<int> ranks;
  const UnitPtr unit = toggles_.unit_of(toggle.id);
  if (unit != nullptr && !topology_.has_ended(unit->key.process_set)) {
    ranks = topology_.ranks_of_set(unit->key.process_set);
    std::erase_if(ranks, [&](int rank) { return topology_.host_of(rank) != host; });
  }
  return add_toggle(ranks, toggle, now);
}

Status Sequencer::add_payload(Payload payload) {
  const Result<bool> counts = toggles_.counts(payload);
  if (!counts) return counts.status();
  if (*counts) payloads_.add(std::move(payload));
  return Status::ok();
}

void Sequencer::add_one(int rank, const UnitPtr& unit, std::uint64_t id, Nanos now) {
  if (topology_.is_closed(unit->key.process_set)) return;
  if (!take_owed(rank, unit->key)) table_.add(rank, unit, id, now);
}

// A submission that the others have seen fail without waiting for it fails alone.
bool Sequencer::take_owed(int rank, const UnitKey& key) {
  const auto owed = owed_.find(key);
  if (owed == owed_.end()) return false;
  auto& ranks = owed->second.ranks;
  const auto debt = ranks.find(rank);
  if (debt == ranks.end()) return false;
  failures_.emplace_back(Failure{key, {rank}, owed->second.status});
  if (--debt->second == 0) ranks.erase(debt);
  if (ranks.empty()) owed_.erase(owed);
  return true;
}

void Sequencer::check_complete(const UnitKey& key) {
  if (!table_.is_complete(key, expected_ranks(key.process_set))) return;
  if (table_.set_ready(key)) ready_.push_back(key);
}

void Sequencer::add_joined(std::uint32_t process_set, int rank, Nanos now) {
  if (topology_.is_over(process_set)) return;
  if (slots_ != nullptr) {  // it will publish no more
    for (const std::uint64_t id : slots_->ids_of_set(process_set)) {
      close_slot(*cache_.find(slots_->unit_of(id)->key), failures_, now);
    }
  }
  auto& joined = joined_[process_set];
  joined.insert(rank);
  std::vector<UnitKey> keys;
  for (auto it = table_.all().lower_bound({process_set, {}});
       it != table_.all().end() && it->first.process_set == process_set; ++it) {
    keys.push_back(it->first);
  }
  for (const UnitKey& key : keys) check_complete(key);
  for (auto it = owed_.lower_bound({process_set, {}});  // it will not submit these any more
       it != owed_.end() && it->first.process_set == process_set;) {
    it->second.ranks.erase(rank);
    it = it->second.ranks.empty() ? owed_.erase(it) : std::next(it);
  }
  if (joined.size() == topology_.ranks_of_set(process_set).size()) {
    join_ends_.push_back({process_set, rank});
    joined_.erase(process_set);
  }
}

// The id by which a submission was made through a slot and then taken from there; 0: it was not.
std::uint32_t Sequencer::slot_id_of(const PendingUnit& pending, int rank) const {
  if (slots_ == nullptr) return 0;
  for (const Variant& variant : pending.variants) {
    const bool has = std::binary_search(variant.ranks.begin(), variant.ranks.end(), rank);
    if (!has || variant.id == 0 || toggles_.unit_of(variant.id) != nullptr) continue;
    return static_cast<std::uint32_t>(variant.id);
  }
  return 0;
}

void Sequencer::expire(const UnitKey& key, int rank, Nanos now, SlotMark mark) {
  if (topology_.is_over(key.process_set)) return;
  const auto* cached = with_slot(key);
  if (cached != nullptr && slots_->waits(cached->id, rank, mark)) {
    close_slot(*cached, failures_, now);
  }
  const PendingUnit* pending = table_.find(key);
  if (pending != nullptr && !pending->ready && pending->has(rank) &&
      slot_id_of(*pending, rank) == mark.id) {
    fail_late(key, "its time limit on " + ranks_text({rank}) + " has passed");
  }
}

void Sequencer::fail_late(const UnitKey& key, const std::string& cause) {
  const PendingUnit pending = *table_.take(key);
  const std::vector<int> missing = pending.missing(expected_ranks(key.process_set));
  Status status = timed_out(unit_text(*pending.variants.front().unit) + ": " + cause +
                            " while it was missing on " + ranks_text(missing) +
                            ". Submit it on every rank, or raise the limit");
  const auto [owed, is_new] = owed_.try_emplace(key);
  owed->second.status = status;
  for (const int rank : missing) ++owed->second.ranks[rank];
  if (is_new) owed_order_.push_back(key);
  if (const auto* cached = cache_.find(key)) evict(*cached, &pending, failures_);
  failures_.emplace_back(Failure{key, pending.present, std::move(status)});
  while (owed_order_.size() > kMaxOwed) {
    owed_.erase(owed_order_.front());
    owed_order_.pop_front();
  }
}

void Sequencer::tick(Nanos now) {
  std::vector<LateUnit> waiting;
  for (const auto& [key, pending] : table_.all()) {
    if (pending.ready) continue;
    waiting.push_back({pending.variants.front().unit, pending.first_seen,
                       pending.missing(expected_ranks(key.process_set))});
  }
  if (slots_ != nullptr) {
    for (LateUnit& late : slots_->late(now)) waiting.push_back(std::move(late));
  }
  if (waiting.empty()) return;
  const StallDetector::Verdict verdict = stalls_.observe(waiting, now);
  if (!verdict.warning.empty()) warnings_.push_back(verdict.warning);
  for (const UnitKey& key : verdict.expired) {
    if (const auto* cached = with_slot(key)) close_slot(*cached, failures_, now);
    const PendingUnit* pending = table_.find(key);
    if (pending != nullptr && !pending->ready) fail_late(key, "the stall limit has passed");
  }
}

Nanos Sequencer::next_deadline(Nanos now) const {
  Nanos next = slots_ == nullptr ? kNever : slots_->next_look();
  for (const auto& [key, pending] : table_.all()) {
    next = std::min(next, stalls_.next_look(pending.first_seen, now));
  }
  return next;
}

// Takes the id out of use and says so in `items`, before the failure of what was submitted by it.
// `pending`: the unit's entry, if it has one.
void Sequencer::evict(ResponseCache::Cached cached, const PendingUnit* pending,
                      std::vector<Item>& items) {
  items.emplace_back(Evict{cached.id});
  cache_.erase(cached.id);
  payloads_.forget(cached.id);
  toggles_.retire(cached.id,
                  pending == nullptr ? std::vector<int>{} : pending->present_by(cached.id));
}

// What the order says of an agreed unit beside its place.
Status Sequencer::place(UnitOrder& order, const PendingUnit& pending) {
  const std::vector<int>& ranks = topology_.ranks_of_set(order.unit->key.process_set);
  KOLO_RETURN_IF_ERROR(check_agreement(pending));
  KOLO_RETURN_IF_ERROR(check_absent(*order.unit, order.absent));
  const bool known = pending.variants.size() == 1 && pending.variants.front().id != 0;
  if (known) return Status::ok();
  order.unit = agreed_unit(pending, ranks);
  if (!options_.mixed_memory) KOLO_RETURN_IF_ERROR(check_one_memory(pending, *order.unit, ranks));
  Result<OrderCounts> counts = gather_counts(pending, ranks);
  if (!counts) return counts.status();
  order.counts = *std::move(counts);
  if (order.unit->group) return Status::ok();
  const TensorSpec& spec = order.unit->tensors.front();
  if (spec.kind == OpKind::kCreateSet) {
    if (spec.shape.back() >= topology_.size()) {
      return invalid_argument(unit_text(*order.unit) + ": rank " +
                              std::to_string(spec.shape.back()) +
                              " does not exist. Name ranks of this job");
    }
    newest_set_ = std::max(newest_set_, topology_.newest_set()) + 1;
    order.new_set = newest_set_;
  }
  if (spec.kind == OpKind::kDestroySet) {
    const auto id = static_cast<std::uint32_t>(spec.shape.front());
    const bool ends_already = std::ranges::any_of(
        set_ends_, [&](const UnitOrder& end) { return ended_set(*end.unit) == id; });
    if (id == 0 || !topology_.has_set(id) || ends_already) {
      return invalid_argument(unit_text(*order.unit) +
                              ": there is no such process set. Destroy each set once");
    }
  }
  return Status::ok();
}

// One ready unit: a failure (to `before`), or a member of `run`.
void Sequencer::order(PendingUnit pending, Run& run, std::vector<Item>& before) {
  const UnitPtr unit = pending.variants.front().unit;
  UnitOrder unit_order{
      0, unit, false, pending.missing(topology_.ranks_of_set(unit->key.process_set)), {}};
  const ResponseCache::Cached* cached = cache_.find(unit->key);
  KOLO_CHECK(with_slot(unit->key) == nullptr);  // a fact of it has closed the slot
  Status status = place(unit_order, pending);
  if (!status) {
    if (cached != nullptr) evict(*cached, &pending, before);
    before.emplace_back(Failure{unit->key, pending.present, std::move(status)});
    return;
  }
  const UnitPtr agreed = unit_order.unit;
  if (cached != nullptr && *cached->unit != *agreed) {  // agreed on something new
    evict(*cached, &pending, before);
    cached = nullptr;
  }
  if (ended_set(*unit) != 0) {
    set_ends_.push_back(std::move(unit_order));
    return;
  }
  const bool cacheable = cache_.enabled() && agreed->is_cacheable();
  if (cached == nullptr && cacheable && unit->key.process_set != ending_) {
    introduce(unit_order);
  } else if (cached != nullptr) {
    auto payloads = payloads_.take(cached->id, topology_.ranks_of_set(unit->key.process_set));
    if (payloads && unit_order.absent.empty()) unit_order.payloads = *std::move(payloads);
    toggles_.ordered(cached->id, unit_order.absent);
    cache_.touch(cached->id);
    unit_order.id = cached->id;
    unit_order.unit = cached->unit;
  }
  run.units.push_back(std::move(unit_order));
}

void Sequencer::introduce(UnitOrder& order) {
  const ResponseCache::Cached& cached = cache_.insert(order.unit);
  order.id = cached.id;
  order.first_sight = true;
  const std::uint32_t set = order.unit->key.process_set;
  if (slots_ != nullptr && joined_[set].empty() && !order.unit->tensors.empty()) {
    const TensorSpec& spec = order.unit->tensors.front();
    order.inlined = payload_may_travel(*order.unit) &&
                    (spec.kind != OpKind::kAllreduce || options_.inline_allreduce);
    order.slot = slots_->introduce(cached.id, order.unit, order.inlined);
  }
  if (order.slot) return;
  toggles_.introduce(cached.id, order.unit);
  toggles_.ordered(cached.id, order.absent);
}

// The unit's number, if it is ordered through a slot.
const ResponseCache::Cached* Sequencer::with_slot(const UnitKey& key) const {
  if (slots_ == nullptr) return nullptr;
  const ResponseCache::Cached* cached = cache_.find(key);
  return cached != nullptr && slots_->has(cached->id) ? cached : nullptr;
}

void Sequencer::close_slot(ResponseCache::Cached cached, std::vector<Item>& items, Nanos now) {
  std::vector<int> taken = slots_->close(cached.id);
  cache_.erase(cached.id);
  toggles_.retire_slot();
  for (const int rank : taken) add_one(rank, cached.unit, cached.id, now);
  items.emplace_back(Evict{cached.id, std::move(taken)});
  check_complete(cached.unit->key);
}

// Least recently ordered first; what has been used through its slot meanwhile gets another turn.
void Sequencer::evict_over_capacity(std::vector<Item>& items, Nanos now) {
  while (const auto victim = cache_.victim()) {
    if (with_slot(victim->unit->key) == nullptr) {
      evict(*victim, table_.find(victim->unit->key), items);
    } else if (slots_->used_since(victim->id)) {
      cache_.touch(victim->id);
    } else {
      close_slot(*victim, items, now);
    }
  }
}

void Sequencer::order_ready(std::vector<Item>& items, Nanos now) {
  Run run;
  for (const UnitKey& key : std::exchange(ready_, {})) order(*table_.take(key), run, items);
  if (run.units.empty()) return;
  run.cuts = plan_fusion(run.units, options_.fusion);
  items.emplace_back(std::move(run));
  evict_over_capacity(items, now);
}

std::vector<Item> Sequencer::drain(Nanos now) {
  std::vector<Item> items = std::exchange(failures_, {});
  order_ready(items, now);
  end_joins(items);
  for (std::size_t i = 0; i < set_ends_.size(); ++i) {  // another may become ready meanwhile
    const UnitOrder end = set_ends_[i];
    end_set(ended_set(*end.unit), items, now);
    items.emplace_back(Run{{end}, {}});
  }
  set_ends_.clear();
  return items;
}

}  // namespace kolo::internal
