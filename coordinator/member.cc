#include "coordinator/member.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace kolo::internal {

Status Member::submit(Ticket ticket, UnitPtr unit, Nanos deadline) {
  const UnitKey key = unit->key;
  const auto it = pending_.find(key);
  if (it != pending_.end()) {
    Pending& before = it->second;
    const bool before_was_refused = before.ticket == 0;
    if (!before_was_refused || before.next || ticket == 0) {
      return {StatusCode::kDuplicateName,
              unit_text(*unit) + ": an operation of this name is still under way on this rank. "
                                 "Wait for it, or use another name"};
    }
    before.next.emplace(ticket, std::move(unit));
    before.next_deadline = deadline;
    return Status::ok();
  }
  Pending& pending = pending_[key];
  pending.ticket = ticket;
  pending.unit = std::move(unit);
  pending.deadline = deadline;
  publish(pending);
  return Status::ok();
}

void Member::publish(Pending& pending) {
  const auto known = id_of_.find(pending.unit->key);
  if (known != id_of_.end()) {
    const Known& cached = by_id_.at(known->second);
    if (*cached.unit == *pending.unit) {
      pending.unit = cached.unit;
      report_.toggles.push_back({known->second, !cached.ordered_parity});
      return;
    }
  }
  report_.facts.push_back({pending.unit, 0, false, {}});
}

void Member::join(std::uint32_t process_set) {
  joined_.insert(process_set);
  report_.joined.push_back({process_set, rank_});
}

void Member::tick(Nanos now) {
  for (auto& [key, pending] : pending_) {
    if (pending.deadline > now || pending.expired) continue;
    pending.expired = true;
    report_.expired.push_back({key, rank_});
  }
}

Nanos Member::next_deadline() const {
  Nanos next = kNever;
  for (const auto& [key, pending] : pending_) {
    if (!pending.expired) next = std::min(next, pending.deadline);
  }
  return next;
}

std::optional<Plan> Member::apply(const Item& item, std::vector<Finished>& finished) {
  if (const auto* run = std::get_if<Run>(&item)) return apply_run(*run);
  if (const auto* failure = std::get_if<Failure>(&item)) apply_failure(*failure, finished);
  if (const auto* evict = std::get_if<Evict>(&item)) apply_evict(evict->id);
  if (const auto* done = std::get_if<JoinDone>(&item)) joined_.erase(done->process_set);
  return std::nullopt;
}

std::optional<Plan> Member::apply_run(const Run& run) {
  Plan plan;
  plan.units.reserve(run.units.size());
  std::set<std::uint32_t> sets;
  bool concerns_us = false;
  for (const UnitOrder& order : run.units) {
    UnitPtr unit = order.unit;
    if (order.id != 0) {
      Known& known = by_id_[order.id];
      if (order.first_sight) {
        known.unit = order.unit;
        id_of_[order.unit->key] = order.id;
      }
      KOLO_CHECK(known.unit != nullptr);  // an id that the stream has not introduced
      known.ordered_parity = !known.ordered_parity;
      unit = known.unit;
    }
    const std::uint32_t set = unit->key.process_set;
    const bool ours = topology_.in_set(set, rank_) && !closed_.contains(set);
    std::uint64_t& runs = runs_[set];
    if (sets.insert(set).second && ours) ++runs;
    PlannedUnit planned{0, unit, order.absent, runs};
    if (ours) {
      concerns_us = true;
      const auto pending = pending_.find(unit->key);
      const bool absent =
          std::find(order.absent.begin(), order.absent.end(), rank_) != order.absent.end();
      KOLO_CHECK(absent || pending != pending_.end());
      if (!absent) {
        planned.ticket = pending->second.ticket;
        KOLO_CHECK(planned.ticket != 0);
        finish_pending(unit->key);
      }
    } else {
      planned.run = 0;  // not for this rank; it keeps its places in the cuts
    }
    plan.units.push_back(std::move(planned));
  }
  if (!concerns_us) return std::nullopt;
  plan.cuts = run.cuts;
  if (plan.cuts.empty()) {
    std::uint32_t tensors = 0;
    for (const PlannedUnit& planned : plan.units) {
      tensors += static_cast<std::uint32_t>(planned.unit->tensors.size());
    }
    for (std::uint32_t place = 0; place < tensors; ++place) plan.cuts.push_back({place});
  }
  return plan;
}

void Member::finish_pending(const UnitKey& key) {
  const auto it = pending_.find(key);
  if (it == pending_.end()) return;
  const Pending pending = std::move(it->second);
  pending_.erase(it);
  if (!pending.next) return;
  const Status submitted =
      submit(pending.next->first, pending.next->second, pending.next_deadline);
  KOLO_CHECK(submitted.is_ok());
}

void Member::apply_failure(const Failure& failure, std::vector<Finished>& finished) {
  if (std::find(failure.ranks.begin(), failure.ranks.end(), rank_) == failure.ranks.end()) return;
  const auto it = pending_.find(failure.key);
  if (it == pending_.end()) return;  // given up meanwhile
  if (it->second.ticket != 0) finished.push_back({it->second.ticket, failure.status});
  finish_pending(failure.key);
}

void Member::apply_evict(std::uint64_t id) {
  const auto known = by_id_.find(id);
  if (known == by_id_.end()) return;
  const auto named = id_of_.find(known->second.unit->key);
  if (named != id_of_.end() && named->second == id) id_of_.erase(named);
  by_id_.erase(known);
}

std::vector<Ticket> Member::give_up(const std::function<bool(std::uint32_t)>& concerned) {
  std::vector<Ticket> tickets;
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (!concerned(it->first.process_set)) {
      ++it;
      continue;
    }
    if (it->second.ticket != 0) tickets.push_back(it->second.ticket);
    if (it->second.next) tickets.push_back(it->second.next->first);
    it = pending_.erase(it);
  }
  return tickets;
}

}  // namespace kolo::internal
