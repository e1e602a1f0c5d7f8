#include "core/process_sets.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "coordinator/unit.h"

namespace kolo::internal {
namespace {

ReductionOrder order_of(const std::vector<int>& ranks, const std::vector<int>& host_of) {
  std::vector<int> hosts;
  for (const int rank : ranks) hosts.push_back(host_of[static_cast<std::size_t>(rank)]);
  return ReductionOrder(hosts);
}

std::vector<int> all_ranks(std::size_t size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

ProcessSet::ProcessSet(std::uint32_t the_id, std::vector<int> the_ranks, int rank,
                       const std::vector<int>& host_of)
    : id(the_id), ranks(std::move(the_ranks)), order(order_of(ranks, host_of)) {
  place = place_of(rank);
}

int ProcessSet::place_of(int rank) const {
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() || *found != rank ? -1 : static_cast<int>(found - ranks.begin());
}

std::string set_text(const ProcessSet& set) {
  if (set.id == 0) return "the world";
  return "process set " + std::to_string(set.id) + " (" + ranks_text(set.ranks) + ")";
}

ProcessSets::ProcessSets(std::vector<int> host_of, int rank)
    : host_of_(std::move(host_of)),
      rank_(rank),
      world_(std::make_unique<ProcessSet>(0, all_ranks(host_of_.size()), rank, host_of_)) {}

Result<ProcessSet*> ProcessSets::find(std::int32_t id) const {
  if (id == 0) return world_.get();
  if (id > 0) {
    const std::shared_lock lock(mutex_);
    const auto found = sets_.find(static_cast<std::uint32_t>(id));
    if (found != sets_.end()) return found->second.get();
  }
  return invalid_argument("there is no process set " + std::to_string(id) +
                          ", or no longer; use a number from kolo_pset_create, or 0, the world");
}

Result<ProcessSet*> ProcessSets::usable(std::int32_t id) const {
  Result<ProcessSet*> set = find(id);
  if (!set) return set;
  const Status status = check_usable(**set);
  return status ? set : Result<ProcessSet*>(status);
}

Status ProcessSets::check_usable(const ProcessSet& set) {
  if (set.place < 0) {
    return invalid_argument("this rank is not in " + set_text(set) +
                            "; submit to it on its ranks only");
  }
  if (set.left.load(std::memory_order_acquire)) return set.left_status;
  if (set.joined.load(std::memory_order_relaxed)) {
    return invalid_argument("this rank has joined in " + set_text(set) +
                            "; wait for kolo_join to complete before submitting to it again");
  }
  if (set.closing.load(std::memory_order_relaxed)) {
    return invalid_argument("this rank has called kolo_pset_destroy for " + set_text(set) +
                            "; nothing can be submitted to it any more");
  }
  return Status::ok();
}

ProcessSet& ProcessSets::add(std::uint32_t id, std::vector<int> ranks) {
  auto set = std::make_unique<ProcessSet>(id, std::move(ranks), rank_, host_of_);
  const std::unique_lock lock(mutex_);
  const auto [place, is_new] = sets_.emplace(id, std::move(set));
  KOLO_CHECK(is_new);
  return *place->second;
}

void ProcessSets::leave(std::uint32_t id, const Status& status) {
  const auto set = find(static_cast<std::int32_t>(id));
  if (!set || (*set)->left.load(std::memory_order_relaxed)) return;
  (*set)->left_status = status;
  (*set)->left.store(true, std::memory_order_seq_cst);
}

void ProcessSets::retire(std::uint32_t id) {
  const std::unique_lock lock(mutex_);
  const auto found = sets_.find(id);
  if (found == sets_.end()) return;
  ended_.push_back(std::move(found->second));
  sets_.erase(found);
}

}  // namespace kolo::internal
