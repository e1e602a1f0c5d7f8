#include "tests/sim/slots.h"

#include <algorithm>
#include <utility>

#include "coordinator/placement.h"

namespace kolo::internal {

SlotBoards::SlotBoards(std::uint32_t slots, int ranks) {
  std::vector<const std::byte*> all;
  for (int rank = 0; rank < ranks; ++rank) {
    memory_.emplace_back(SlotBoard::bytes(slots) / sizeof(Line) + 1);
    all.push_back(memory_.back().front().bytes);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    std::byte* own = memory_[static_cast<std::size_t>(rank)].front().bytes;
    boards_.push_back(std::make_unique<SlotBoard>(slots, rank, own, all));
  }
}

SlotTable::SlotTable(const Topology& topology, int rank, SlotBoard& board, Complete complete,
                     Ring ring)
    : topology_(topology),
      rank_(rank),
      board_(board),
      complete_(std::move(complete)),
      ring_(std::move(ring)),
      place_(static_cast<std::size_t>(topology.size()), -1) {
  int place = 0;
  for (const int local : topology.ranks_of_host(topology.host_of(rank))) {
    place_[static_cast<std::size_t>(local)] = place++;
  }
}

std::vector<int> SlotTable::members(const Entry& entry) const {
  return topology_.ranks_of_set(entry.unit->key.process_set);
}

bool SlotTable::publish(Ticket ticket, const UnitPtr& unit, Nanos deadline,
                        const std::string& payload) {
  const auto found = entries_.find(unit->key);
  if (found == entries_.end()) return false;
  Entry& entry = found->second;
  const std::vector<int> ranks = members(entry);
  const auto place = std::ranges::lower_bound(ranks, rank_) - ranks.begin();
  if (entry.leaving || !is_part_of(*unit, *entry.unit, static_cast<std::size_t>(place))) {
    entry.leaving = true;
    return false;
  }
  entry.published = true;
  entry.expired = false;
  entry.submission = {ticket, entry.unit, deadline};
  ++entry.round;
  if (entry.inlined) {
    board_.publish(entry.slot, entry.mark(), std::as_bytes(std::span(payload)));
    for (const int member : members(entry)) ring_(member);
  } else {
    board_.publish(entry.slot, entry.mark());
    board_.announce(entry.slot, entry.mark());
    ring_(topology_.leader_of(rank_));
  }
  return true;
}

void SlotTable::refuse(const UnitKey& key) {
  const auto found = entries_.find(key);
  if (found != entries_.end()) found->second.leaving = true;
}

bool SlotTable::complete(Entry& entry) {
  if (!entry.published || !entry.inlined) return false;
  std::vector<std::string> payloads;
  for (const int member : members(entry)) {
    const int place = place_[static_cast<std::size_t>(member)];
    if (!board_.shows(place, entry.slot, entry.mark())) return false;
  }
  if (board_.is_closed(entry.slot, entry.mark())) return false;
  for (const int member : members(entry)) {
    const int place = place_[static_cast<std::size_t>(member)];
    const TensorSpec& spec = entry.unit->tensors.front();
    const bool gives = spec.kind != OpKind::kBroadcast || spec.root == member;
    const auto* bytes =
        reinterpret_cast<const char*>(board_.payload(place, entry.slot, entry.mark()));
    payloads.emplace_back(bytes, gives ? spec.count * element_bytes(spec.dtype) : 0);
  }
  entry.published = false;
  const SlotSubmission ended = entry.submission;
  complete_(ended.ticket, ended.unit, payloads);
  return true;
}

bool SlotTable::complete_one() {
  return std::any_of(entries_.begin(), entries_.end(),
                     [this](auto& place) { return complete(place.second); });
}

const SlotTable::Entry* SlotTable::find(const LogEntry& entry) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& place) {
    return place.second.slot == entry.slot && place.second.mark().id == entry.id;
  });
  return found == entries_.end() ? nullptr : &found->second;
}

SlotSubmission SlotTable::ordered(const LogEntry& entry) {
  const Entry* found = find(entry);
  if (found == nullptr || !found->published) return {};
  Entry& mine = entries_.at(found->unit->key);
  mine.published = false;
  return mine.submission;
}

std::vector<std::pair<UnitKey, SlotMark>> SlotTable::take_expired(Nanos now) {
  std::vector<std::pair<UnitKey, SlotMark>> keys;
  for (auto& [key, entry] : entries_) {
    if (!entry.published || entry.expired || entry.submission.deadline > now) continue;
    entry.expired = true;
    keys.emplace_back(key, entry.mark());
  }
  return keys;
}

Nanos SlotTable::next_deadline() const {
  Nanos next = kNever;
  for (const auto& [key, entry] : entries_) {
    if (entry.published && !entry.expired) next = std::min(next, entry.submission.deadline);
  }
  return next;
}

std::vector<Ticket> SlotTable::give_up(std::optional<std::uint32_t> process_set) {
  std::vector<Ticket> tickets;
  for (auto& [key, entry] : entries_) {
    if (!entry.published || (process_set && key.process_set != *process_set)) continue;
    entry.published = false;
    entry.leaving = true;
    tickets.push_back(entry.submission.ticket);
  }
  return tickets;
}

void SlotTable::learned(std::uint64_t id, std::uint32_t slot, bool inlined, const UnitPtr& unit) {
  Entry entry;
  entry.id = id;
  entry.slot = slot;
  entry.inlined = inlined;
  entry.unit = unit;
  entries_[unit->key] = std::move(entry);
}

std::optional<SlotSubmission> SlotTable::forgotten(std::uint64_t id, const UnitKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.id != id) return std::nullopt;
  // An earlier round than the one that was closed may be complete and not looked at yet.
  complete(found->second);
  const Entry entry = std::move(found->second);
  entries_.erase(found);
  if (!entry.published) return std::nullopt;
  return entry.submission;
}

bool SlotTable::awaits_eviction(std::uint32_t process_set) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& place) {
    const Entry& entry = place.second;
    return place.first.process_set == process_set && entry.published &&
           board_.is_closed(entry.slot, entry.mark());
  });
}

}  // namespace kolo::internal
