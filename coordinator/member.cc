#include "coordinator/member.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "coordinator/personal_counts.h"
#include "coordinator/placement.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kMaxBehind = 4096;

Status bad_order(const std::string& what) {
  return {StatusCode::kInternal,
          "the ordered stream breaks the protocol: " + what + ". All ranks must run the same kolo"};
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// Every tensor stands in one cut, and a cut is of one process set.
Status check_cuts(const std::vector<std::vector<std::uint32_t>>& cuts,
                  const std::vector<std::uint32_t>& set_of_place) {
  std::vector<bool> seen(set_of_place.size());
  std::size_t count = 0;
  for (const auto& cut : cuts) {
    if (cut.empty()) return bad_order("an empty cut");
    for (const std::uint32_t place : cut) {
      if (place >= seen.size() || seen[place]) return bad_order("a cut of a wrong tensor");
      if (set_of_place[place] != set_of_place[cut.front()]) {
        return bad_order("a cut across process sets");
      }
      seen[place] = true;
      ++count;
    }
  }
  return count == seen.size() ? Status::ok() : bad_order("a tensor in no cut");
}

Status check_payloads(const UnitOrder& order, const Unit& unit, const std::vector<int>& ranks) {
  if (order.payloads.empty()) return Status::ok();
  if (order.payloads.size() != ranks.size() || !order.absent.empty()) {
    return bad_order("payloads of some ranks only");
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!payload_fits(unit, ranks[i], order.payloads[i].size())) {
      return bad_order("a payload that does not fit " + unit_text(unit));
    }
  }
  return Status::ok();
}

}  // namespace

Status Member::submit(Ticket ticket, UnitPtr unit, Nanos deadline,
                      std::optional<std::string> payload) {
  const UnitKey key = unit->key;
  const auto it = pending_.find(key);
  if (it != pending_.end()) {
    Pending& before = it->second;
    if (before.ticket != 0 || (!before.behind.empty() && before.behind.back().ticket != 0)) {
      return {StatusCode::kDuplicateName,
              unit_text(*unit) +
                  ": an operation of this name is still under way on this rank. "
                  "Wait for it, or use another name"};
    }
    if (before.behind.size() >= kMaxBehind) {
      return resource_error(unit_text(*unit) +
                            ": too many refused calls of this name wait for "
                            "the other ranks. Use another name");
    }
    before.behind.push_back({ticket, std::move(unit), deadline});
    before.deadline = std::min(before.deadline, deadline);  // what it waits for has no time either
    return Status::ok();
  }
  Pending& pending = pending_[key];
  pending.ticket = ticket;
  pending.unit = std::move(unit);
  pending.payload = std::move(payload);
  pending.deadline = deadline;
  const std::uint32_t ended = ended_set(*pending.unit);
  if (ended != 0 && awaits_eviction(ended)) {
    ending_[ended] = key;
  } else {
    publish(pending);
  }
  return Status::ok();
}

bool Member::is_known(const Unit& submitted, const Unit& agreed) const {
  const std::vector<int>& ranks = topology_.ranks_of_set(agreed.key.process_set);
  const auto place = std::ranges::lower_bound(ranks, rank_) - ranks.begin();
  return is_part_of(submitted, agreed, static_cast<std::size_t>(place));
}

void Member::publish(Pending& pending) {
  // The word that an earlier submission has expired must not meet this one.
  std::erase_if(report_.expired,
                [&](const Expiry& expiry) { return expiry.key == pending.unit->key; });
  pending.expired = false;
  const auto known = id_of_.find(pending.unit->key);
  if (known != id_of_.end()) {
    const Known& cached = by_id_.at(known->second);
    if (!cached.has_slot && is_known(*pending.unit, *cached.unit)) {
      pending.unit = cached.unit;
      report_.toggles.push_back({known->second, !cached.ordered_parity});
      if (pending.payload) {
        report_.payloads.push_back(
            {known->second, !cached.ordered_parity, rank_, *std::move(pending.payload)});
      }
      return;
    }
  }
  report_.facts.push_back({pending.unit, 0, false, {}});
}

void Member::join(std::uint32_t process_set) {
  joining_.insert(process_set);
  go_on_with(process_set);
}

bool Member::is_behind(std::uint32_t process_set) const {
  for (auto it = pending_.lower_bound({process_set, {}});
       it != pending_.end() && it->first.process_set == process_set; ++it) {
    if (!it->second.behind.empty()) return true;
  }
  return false;
}

bool Member::awaits_eviction(std::uint32_t process_set) const {
  return slots_ != nullptr && slots_->awaits_eviction(process_set);
}

// The end of a set does not wait for what is behind a refused submission: the other ranks, which
// end that one too, may be waiting for this word.
void Member::go_on_with(std::uint32_t process_set) {
  if (!joining_.contains(process_set) && !ending_.contains(process_set)) return;
  if (awaits_eviction(process_set)) return;
  if (joining_.contains(process_set) && !is_behind(process_set)) {
    joining_.erase(process_set);
    report_.joined.push_back({process_set, rank_});
  }
  const auto ending = ending_.extract(process_set);
  if (ending.empty()) return;
  const auto pending = pending_.find(ending.mapped());
  if (pending != pending_.end()) publish(pending->second);
}

void Member::tick(Nanos now) {
  for (auto& [key, pending] : pending_) {
    if (pending.deadline > now || pending.expired) continue;
    pending.expired = true;
    report_.expired.push_back({key, rank_, pending.mark});
  }
}

Nanos Member::next_deadline() const {
  Nanos next = kNever;
  for (const auto& [key, pending] : pending_) {
    if (!pending.expired) next = std::min(next, pending.deadline);
  }
  return next;
}

Status Member::apply(const Item& item, std::optional<Plan>& plan, std::vector<Finished>& finished) {
  if (const auto* run = std::get_if<Run>(&item)) return apply_run(*run, plan);
  if (const auto* evict = std::get_if<Evict>(&item)) return apply_evict(*evict);
  if (const auto* failure = std::get_if<Failure>(&item)) {
    if (!topology_.has_set(failure->key.process_set)) return bad_order("an unknown process set");
    apply_failure(*failure, finished);
  }
  if (const auto* done = std::get_if<JoinDone>(&item)) {
    if (!topology_.has_set(done->process_set)) return bad_order("an unknown process set");
  }
  return Status::ok();
}

Status Member::apply_run(const Run& run, std::optional<Plan>& result) {
  Plan plan;
  plan.units.reserve(run.units.size());
  std::vector<std::uint32_t> set_of_place;
  std::set<std::uint32_t> sets;
  std::set<std::uint32_t> others;  // without this rank, but it passes their runs on
  bool changes_sets = false;       // then all learn of it, whatever has become of their calls
  for (const UnitOrder& order : run.units) {
    PlannedUnit planned;
    KOLO_RETURN_IF_ERROR(apply_order(order, planned));
    changes_sets = changes_sets || planned.new_set != 0 || ended_set(*planned.unit) != 0;
    const std::uint32_t set = planned.unit->key.process_set;
    set_of_place.insert(set_of_place.end(), planned.unit->tensors.size(), set);
    if (!topology_.in_set(set, rank_)) {
      if (others.insert(set).second) ++runs_[set];
    } else if (!topology_.is_closed(set)) {
      if (sets.insert(set).second) ++runs_[set];
      planned.run = runs_[set];
    }
    plan.units.push_back(std::move(planned));
  }
  plan.cuts = run.cuts;
  if (plan.cuts.empty()) {
    for (std::uint32_t place = 0; place < set_of_place.size(); ++place) {
      plan.cuts.push_back({place});
    }
  } else {
    KOLO_RETURN_IF_ERROR(check_cuts(plan.cuts, set_of_place));
  }
  if (!sets.empty() || changes_sets) result = std::move(plan);
  return Status::ok();
}

// Of a unit that the order brings.
Status Member::check_devices(const UnitOrder& order) const {
  if (order.unit == nullptr || !topology_.has_set(order.unit->key.process_set)) return Status::ok();
  const std::size_t size = topology_.ranks_of_set(order.unit->key.process_set).size();
  if (devices_fit(*order.unit, size)) return Status::ok();
  return bad_order("devices that do not fit " + unit_text(*order.unit));
}

// A unit of a run: what it is, and which of our submissions it ends.
Status Member::apply_order(const UnitOrder& order, PlannedUnit& planned) {
  planned.unit = order.unit;
  planned.absent = order.absent;
  planned.payloads = order.payloads;
  planned.new_set = order.new_set;
  planned.counts = order.counts;
  KOLO_RETURN_IF_ERROR(check_devices(order));
  if (order.id != 0) KOLO_RETURN_IF_ERROR(learn(order, planned.unit));
  const UnitKey& key = planned.unit->key;
  if (!topology_.has_set(key.process_set)) return bad_order("an unknown process set");
  if (!topology_.in_set(key.process_set, rank_) || topology_.is_closed(key.process_set)) {
    return Status::ok();  // not for this rank; it keeps its places in the cuts
  }
  const std::vector<int>& ranks = topology_.ranks_of_set(key.process_set);
  if (!counts_fit(order.counts, *planned.unit, ranks.size())) {
    return bad_order("counts that do not fit " + unit_text(*planned.unit));
  }
  if (contains(order.absent, rank_)) return Status::ok();
  const auto pending = pending_.find(key);
  if (pending == pending_.end() || pending->second.ticket == 0) {
    return bad_order("a run of " + unit_text(*planned.unit) +
                     ", which this rank has not submitted");
  }
  KOLO_RETURN_IF_ERROR(check_payloads(order, *pending->second.unit, ranks));
  const auto place =
      static_cast<std::size_t>(std::ranges::lower_bound(ranks, rank_) - ranks.begin());
  if (!is_placed_in(*pending->second.unit, *planned.unit, place)) {
    return bad_order("other devices of " + unit_text(*planned.unit) +
                     " than this rank has submitted");
  }
  if (!order.counts.empty()) {
    planned.unit = placed_as(pending->second.unit, *planned.unit);  // with our own numbers
    if (!counts_fit(order.counts, *planned.unit, ranks.size()) ||
        !counts_tell(order.counts, *planned.unit, place)) {
      return bad_order("other counts of " + unit_text(*planned.unit) +
                       " than this rank has submitted");
    }
  }
  planned.ticket = pending->second.ticket;
  finish_pending(key);
  return Status::ok();
}

// The unit of a cached id, which an order uses or introduces.
Status Member::learn(const UnitOrder& order, UnitPtr& unit) {
  if (order.first_sight) {
    std::uint64_t& newest = newest_id_[order.id & 1];
    if (order.id <= newest) return bad_order("a new unit with a used id");
    newest = order.id;
    Known& fresh = by_id_[order.id];
    fresh.unit = order.unit;
    fresh.has_slot = order.slot.has_value();
    id_of_[order.unit->key] = order.id;
    if (fresh.has_slot && topology_.has_set(order.unit->key.process_set) &&
        topology_.in_set(order.unit->key.process_set, rank_)) {
      if (slots_ == nullptr) return bad_order("a slot where there are none");
      slots_->learned(order.id, *order.slot, order.inlined, order.unit);
    }
  }
  const auto known = by_id_.find(order.id);
  if (known == by_id_.end()) return bad_order("a run of an unknown id");
  const bool absent = contains(order.absent, rank_);
  if (!absent) known->second.ordered_parity = !known->second.ordered_parity;
  unit = known->second.unit;
  return Status::ok();
}

void Member::finish_pending(const UnitKey& key) {
  const auto it = pending_.find(key);
  if (it == pending_.end()) return;
  Pending finished = std::move(it->second);  // keeps its unit, whose key this may be
  std::deque<Waiting>& behind = finished.behind;
  pending_.erase(it);
  if (behind.empty()) return;
  Waiting next = std::move(behind.front());
  behind.pop_front();
  Pending& pending = pending_[key];
  pending.ticket = next.ticket;
  pending.unit = std::move(next.unit);
  pending.deadline = behind.empty() ? next.deadline : behind.back().deadline;
  pending.behind = std::move(behind);
  publish(pending);
  go_on_with(key.process_set);
}

void Member::apply_failure(const Failure& failure, std::vector<Finished>& finished) {
  if (!contains(failure.ranks, rank_)) return;
  const auto it = pending_.find(failure.key);
  if (it == pending_.end()) return;  // given up meanwhile
  if (it->second.ticket != 0) finished.push_back({it->second.ticket, failure.status});
  finish_pending(failure.key);
}

Status Member::apply_evict(const Evict& evict) {
  const auto known = by_id_.find(evict.id);
  if (known == by_id_.end()) return bad_order("an eviction of an unknown id");
  ++evictions_[evict.id & 1];
  const UnitKey key = known->second.unit->key;
  const bool had_slot = known->second.has_slot;
  const auto named = id_of_.find(key);
  if (named != id_of_.end() && named->second == evict.id) id_of_.erase(named);
  by_id_.erase(known);
  if (!had_slot || slots_ == nullptr) return Status::ok();
  auto under_way = slots_->forgotten(evict.id, key);
  if (!under_way) {
    go_on_with(key.process_set);
    return Status::ok();
  }
  if (pending_.contains(key)) return bad_order("an eviction of a unit that waits elsewhere");
  Pending& pending = pending_[key];
  pending.ticket = under_way->ticket;
  pending.unit = std::move(under_way->unit);
  pending.deadline = under_way->deadline;
  if (contains(evict.taken, rank_)) {
    pending.mark = SlotMark{static_cast<std::uint32_t>(evict.id), 0}.word();
  } else {
    publish(pending);
  }
  go_on_with(key.process_set);
  return Status::ok();
}

std::uint64_t Member::count_run(std::uint32_t process_set) {
  if (!topology_.has_set(process_set) || !topology_.in_set(process_set, rank_) ||
      topology_.is_closed(process_set))
    return 0;
  return ++runs_[process_set];
}

std::vector<Finished> Member::give_up(const std::function<bool(std::uint32_t)>& concerned,
                                      const std::function<Status(const Unit&)>& why) {
  std::vector<Finished> given_up;
  std::erase_if(joining_, concerned);
  std::erase_if(ending_, [&](const auto& ending) { return concerned(ending.second.process_set); });
  const auto end = [&](Ticket ticket, const Unit& unit) {
    if (ticket != 0) given_up.push_back({ticket, why(unit)});
  };
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (!concerned(it->first.process_set)) {
      ++it;
      continue;
    }
    end(it->second.ticket, *it->second.unit);
    for (const Waiting& waiting : it->second.behind) end(waiting.ticket, *waiting.unit);
    it = pending_.erase(it);
  }
  return given_up;
}

Result<std::vector<Finished>> Member::end_set(std::uint32_t process_set) {
  const auto known = id_of_.lower_bound({process_set, {}});
  if (known != id_of_.end() && known->first.process_set == process_set) {
    return bad_order("the end of a process set that has known units");
  }
  joining_.erase(process_set);
  ending_.erase(process_set);
  return give_up([&](std::uint32_t set) { return set == process_set; },
                 [&](const Unit& unit) {
                   return aborted("process set " + std::to_string(process_set) +
                                  " was destroyed while " + unit_text(unit) +
                                  " was missing on other ranks. Wait for every operation of a set "
                                  "before any rank destroys it");
                 });
}

}  // namespace kolo::internal
