#include "core/unit_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "coordinator/placement.h"
#include "core/process_sets.h"

namespace kolo::internal {
namespace {

// Of a tensor with counts by rank the first dimension is not told: see core/submissions.cc.
bool is_same_shape(const Submission& submission, const TensorSpec& spec) {
  if (!spec.counts.empty()) {
    if (!submission.has_shape) return spec.shape.size() == 1;
    return submission.shape.size() == spec.shape.size() &&
           std::equal(submission.shape.begin() + 1, submission.shape.end(), spec.shape.begin() + 1);
  }
  if (submission.has_shape) return std::ranges::equal(submission.shape, spec.shape);
  return spec.shape.size() == 1 && spec.shape[0] == static_cast<std::int64_t>(submission.count);
}

// Only numbers that all ranks share are in a known unit.
bool is_same_counts(const Submission& submission, const TensorSpec& spec) {
  const std::size_t* counts = submission.receive_counts;
  if (submission.send_counts != nullptr || submission.allocate) return false;
  if (counts == nullptr) return spec.counts.empty() && submission.count == spec.count;
  return !spec.counts.empty() && std::equal(spec.counts.begin(), spec.counts.end(), counts);
}

bool is_same_place(const Submission& submission, const TensorSpec& spec, int place) {
  const std::int32_t device =
      spec.devices.empty() ? kHostMemory : spec.devices[static_cast<std::size_t>(place)];
  return submission.device == device;
}

bool is_same(const Submission& submission, const Unit& unit, int place) {
  if (unit.group) return false;
  const TensorSpec& spec = unit.tensors.front();
  return is_same_place(submission, spec, place) && submission.kind == spec.kind &&
         submission.dtype == spec.dtype && submission.op == spec.op &&
         submission.root == spec.root && is_same_counts(submission, spec) &&
         submission.prescale == spec.prescale && submission.postscale == spec.postscale &&
         is_same_shape(submission, spec);
}

// This rank's bytes of an inline unit.
std::span<const std::byte> payload_of(const RequestState& request, int rank) {
  const TensorSpec& spec = request.unit->tensors.front();
  if (spec.kind == OpKind::kBroadcast && spec.root != rank) return {};
  return {static_cast<const std::byte*>(request.buffers.front().input),
          spec.count * element_bytes(spec.dtype)};
}

}  // namespace

void UnitTable::use_board(SlotBoard& board, Window& window, int rank) {
  board_ = &board;
  window_ = &window;
  rank_ = rank;
  by_slot_.resize(board.slots());
}

// ---- Submitting -------------------------------------------------------------------------------

Status UnitTable::check_free(const UnitEntry& entry) const {
  if (entry.under_way == nullptr) {
    if (count_.load(std::memory_order_relaxed) < kMaxUnderWay) return Status::ok();
    return resource_error("more than " + std::to_string(kMaxUnderWay) +
                          " operations are under way on this rank. Wait for some of them");
  }
  return {StatusCode::kDuplicateName,
          unit_text(*entry.under_way->unit) +
              ": an operation of this name is still under way on this rank. Wait for it, or use "
              "another name"};
}

void UnitTable::begin(UnitEntry& entry, const RequestPtr& request) {
  entry.under_way = request;
  request->entry = &entry;
  request->phase.store(RequestState::Phase::kRunning, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_seq_cst);
}

void UnitTable::publish(UnitEntry& entry) {
  RequestState& request = *entry.under_way;
  request.unit = entry.unit;
  request.tensors_left = request.unit->tensors.size();
  record(Trace::Phase::kReady, entry);
  entry.published = true;
  entry.seen = 0;
  ++entry.round;
  if (request.deadline != kNever) {
    timed_.push_back(&entry);
    const Nanos next = std::min(next_deadline(), request.deadline);
    next_deadline_.store(next.count(), std::memory_order_relaxed);
  }
  if (entry.inlined) {
    inline_.push_back(&entry);
    inline_count_.store(inline_.size(), std::memory_order_seq_cst);
    board_->publish(entry.slot, entry.mark(), payload_of(request, rank_));
    for (const int member : entry.members) window_->ring(member);
  } else {
    board_->publish(entry.slot, entry.mark());
    board_->announce(entry.slot, entry.mark());
    // A leader outside of the set may be idle, and then it has not said that it sleeps.
    if (entry.members.front() == 0) {
      window_->ring(0);
    } else {
      window_->wake_up(0);
    }
  }
}

Result<UnitTable::Way> UnitTable::publish(const RequestPtr& request, std::uint32_t process_set,
                                          const Submission& submission) {
  if (board_ == nullptr) return Way::kQueue;
  const std::lock_guard lock(mutex_);
  const auto found = map_.find(KeyView{process_set, submission.name});
  if (found == map_.end() || found->second.unit == nullptr) return Way::kQueue;
  UnitEntry& entry = found->second;
  KOLO_RETURN_IF_ERROR(check_free(entry));
  if (entry.leaving || !is_same(submission, *entry.unit, request->set->place)) return Way::kQueue;
  begin(entry, request);
  publish(entry);
  return entry.inlined ? Way::kInline : Way::kOrdered;
}

Status UnitTable::submit(std::span<const RequestPtr> requests, std::vector<RequestPtr>& rest) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto [place, is_new] = map_.try_emplace(requests[i]->unit->key);
    UnitEntry& entry = place->second;
    entry.key = &place->first;
    if (const Status status = check_free(entry); !status) {
      if (is_new) map_.erase(place);
      for (std::size_t j = 0; j < i; ++j) {
        requests[j]->phase.store(RequestState::Phase::kIdle, std::memory_order_relaxed);
        retire_name(*requests[j]);
      }
      return status;
    }
    begin(entry, requests[i]);
  }
  for (const RequestPtr& request : requests) {
    UnitEntry& entry = *request->entry;
    const bool same =
        entry.unit != nullptr && !entry.leaving &&
        (entry.unit == request->unit ||
         is_part_of(*request->unit, *entry.unit, static_cast<std::size_t>(request->set->place)));
    if (same) {
      publish(entry);
    } else {
      entry.leaving = true;
      rest.push_back(request);
    }
  }
  return Status::ok();
}

bool UnitTable::refuse(const UnitKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = map_.find(key);
  if (found == map_.end()) return true;
  if (found->second.under_way != nullptr) return false;
  found->second.leaving = true;
  return true;
}

void UnitTable::free_name(RequestState& request) {
  const std::lock_guard lock(mutex_);
  if (request.entry == nullptr) return;
  if (request.deadline != kNever) std::erase(timed_, request.entry);
  retire_name(request);
  count_.fetch_add(1, std::memory_order_relaxed);
  request.counts_without_name = true;
}

void UnitTable::ended(RequestState& request) {
  const std::lock_guard lock(mutex_);
  if (request.entry != nullptr) {
    if (request.deadline != kNever) std::erase(timed_, request.entry);
    retire_name(request);
  } else if (std::exchange(request.counts_without_name, false)) {
    count_.fetch_sub(1, std::memory_order_relaxed);
  }
  request.phase.store(RequestState::Phase::kDone, std::memory_order_seq_cst);
}

// The name is free; a unit without a slot is forgotten.
void UnitTable::retire_name(RequestState& request) {
  UnitEntry& entry = *std::exchange(request.entry, nullptr);
  count_.fetch_sub(1, std::memory_order_relaxed);
  if (entry.unit != nullptr) {
    entry.under_way = nullptr;
  } else {
    map_.erase(map_.find(*entry.key));
  }
}

// ---- Inline units -----------------------------------------------------------------------------

bool UnitTable::all_published(UnitEntry& entry) {
  while (entry.seen < entry.members.size()) {
    if (!board_->shows(entry.members[entry.seen], entry.slot, entry.mark())) return false;
    ++entry.seen;
  }
  return true;
}

bool UnitTable::use_if_complete(UnitEntry& entry, const Use& use) {
  if (!all_published(entry) || board_->is_closed(entry.slot, entry.mark())) return false;
  contributions_.clear();
  for (const int member : entry.members) {
    contributions_.push_back(board_->payload(member, entry.slot, entry.mark()));
  }
  use(*entry.under_way, contributions_);
  // Who was frozen meanwhile may have been given up, and its slot given to another unit.
  for (const int member : entry.members) {
    if (!board_->shows(member, entry.slot, entry.mark())) return false;
  }
  retire_inline(entry);
  return true;
}

void UnitTable::retire_inline(UnitEntry& entry) {
  entry.published = false;
  std::erase(inline_, &entry);
  inline_count_.store(inline_.size(), std::memory_order_relaxed);
}

bool UnitTable::complete(const RequestPtr& request, const Use& use) {
  const std::lock_guard lock(mutex_);
  UnitEntry* entry = request->entry;
  return entry != nullptr && entry->published && entry->inlined && use_if_complete(*entry, use);
}

RequestPtr UnitTable::complete_any(const Use& use) {
  if (inline_count_.load(std::memory_order_seq_cst) == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  for (UnitEntry* entry : inline_) {
    if (use_if_complete(*entry, use)) return entry->under_way;
  }
  return nullptr;
}

bool UnitTable::is_ours_to_move(const RequestPtr& request) {
  const std::lock_guard lock(mutex_);
  UnitEntry* entry = request->entry;
  if (entry == nullptr || !entry->published) return false;
  return (entry->inlined || board_->rank() == 0) && all_published(*entry);
}

// ---- The host's stream ------------------------------------------------------------------------

void UnitTable::learn(std::uint64_t id, std::uint32_t slot, bool inlined, const UnitPtr& unit,
                      std::span<const int> members) {
  KOLO_CHECK(slot < by_slot_.size());
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = map_.try_emplace(unit->key);
  UnitEntry& entry = place->second;
  entry.key = &place->first;
  entry.unit = unit;
  entry.id = id;
  entry.slot = slot;
  entry.round = 0;
  entry.inlined = inlined;
  entry.leaving = false;
  entry.members = members;
  by_slot_[slot] = &entry;
}

RequestPtr UnitTable::forget(const UnitKey& key, std::uint64_t id, const Use& use,
                             RequestPtr& completed) {
  const std::lock_guard lock(mutex_);
  const auto found = map_.find(key);
  if (found == map_.end() || found->second.id != id) return nullptr;
  UnitEntry& entry = found->second;
  if (by_slot_[entry.slot] == &entry) by_slot_[entry.slot] = nullptr;
  // An earlier round than the one that was closed may be complete and not looked at yet.
  if (entry.published && entry.inlined && use_if_complete(entry, use)) completed = entry.under_way;
  entry.unit = nullptr;
  entry.leaving = false;
  if (entry.under_way == nullptr) {
    map_.erase(found);
    return nullptr;
  }
  if (!entry.published) return nullptr;
  if (entry.inlined) {
    retire_inline(entry);
  } else {
    entry.published = false;
  }
  return entry.under_way;
}

RequestPtr UnitTable::ordered(std::uint32_t slot, std::uint32_t mark_id) {
  const std::lock_guard lock(mutex_);
  UnitEntry* entry = slot < by_slot_.size() ? by_slot_[slot] : nullptr;
  if (entry == nullptr || !entry->published || entry->mark().id != mark_id) return nullptr;
  entry->published = false;
  record(Trace::Phase::kOrdered, *entry);
  return entry->under_way;
}

void UnitTable::record(Trace::Phase phase, const UnitEntry& entry) {
  if (trace_ != nullptr) {
    trace_->record(phase, entry.under_way->id, entry.key->name, clock_->now());
  }
}

std::vector<UnitTable::Expired> UnitTable::take_expired(Nanos now) {
  std::vector<Expired> expired;
  const std::lock_guard lock(mutex_);
  Nanos next = kNever;
  std::erase_if(timed_, [&](UnitEntry* entry) {
    const Nanos deadline = entry->under_way->deadline;
    if (deadline > now) {
      next = std::min(next, deadline);
      return false;
    }
    if (entry->published) expired.push_back({*entry->key, entry->mark()});
    return true;
  });
  next_deadline_.store(next.count(), std::memory_order_relaxed);
  return expired;
}

bool UnitTable::awaits_eviction(std::uint32_t process_set) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(map_.begin(), map_.end(), [&](const auto& place) {
    const UnitEntry& entry = place.second;
    return place.first.process_set == process_set && entry.published &&
           board_->is_closed(entry.slot, entry.mark());
  });
}

std::vector<RequestPtr> UnitTable::give_up(std::optional<std::uint32_t> process_set) {
  std::vector<RequestPtr> requests;
  const std::lock_guard lock(mutex_);
  for (auto& [key, entry] : map_) {
    if (!entry.published || (process_set && key.process_set != *process_set)) continue;
    if (entry.inlined) retire_inline(entry);
    entry.published = false;
    entry.leaving = true;
    requests.push_back(entry.under_way);
  }
  return requests;
}

}  // namespace kolo::internal
