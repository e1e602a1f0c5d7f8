#include "coordinator/slot_board.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kLine = 64;
// The layout of a rank's memory: three lines of counters, the announcements, the log, the closed
// marks, the slots. Log and closed marks are the leader's; the other ranks' are never touched.
constexpr std::size_t kAnnouncedOffset = 0;
constexpr std::size_t kFollowedOffset = kLine;
constexpr std::size_t kLogHeadOffset = 2 * kLine;
constexpr std::size_t kAnnouncementsOffset = 3 * kLine;
constexpr std::size_t kSlotBytes = kLine;
constexpr std::size_t kPayloadOffset = sizeof(std::uint64_t);  // within a slot
static_assert(kPayloadOffset + kPayloadBytesMax <= kSlotBytes);

// A slot has one entry in use, and perhaps one of the unit that had it before.
constexpr std::uint64_t kEntriesPerSlot = 2;

std::size_t log_offset(std::uint32_t slots) {
  return kAnnouncementsOffset + kEntriesPerSlot * slots * sizeof(std::uint64_t);
}
std::size_t closed_offset(std::uint32_t slots) {
  return log_offset(slots) + kEntriesPerSlot * slots * sizeof(std::uint64_t);
}
std::size_t slots_offset(std::uint32_t slots) {
  return closed_offset(slots) + slots * sizeof(std::uint64_t);
}

constexpr std::uint64_t kEndsCut = std::uint64_t{1} << 31;

std::uint64_t word_of(const LogEntry& entry) {
  return std::uint64_t{entry.id} << 32 | (entry.ends_cut ? kEndsCut : 0) | entry.slot;
}

LogEntry entry_of(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word & (kEndsCut - 1)),
          (word & kEndsCut) != 0};
}

}  // namespace

std::uint32_t SlotBoard::slots_for(std::size_t cache_capacity) {
  constexpr std::size_t kSlotsMin = 16;
  return static_cast<std::uint32_t>(
      std::bit_ceil(std::clamp<std::size_t>(cache_capacity, kSlotsMin, kSlotsMax)));
}

std::size_t SlotBoard::bytes(std::uint32_t slots) {
  return slots_offset(slots) + std::size_t{slots} * 2 * kSlotBytes;
}

SlotBoard::SlotBoard(std::uint32_t slots, int rank, std::byte* own,
                     std::vector<const std::byte*> all)
    : slots_(slots),
      log_entries_(kEntriesPerSlot * slots),
      rank_(rank),
      own_(own),
      all_(std::move(all)),
      taken_(all_.size()),
      ignored_(all_.size()) {
  KOLO_CHECK(std::has_single_bit(slots));
}

std::size_t SlotBoard::slot_offset(std::uint32_t slot, std::uint32_t round) const {
  return slots_offset(slots_) + (std::size_t{slot} * 2 + (round & 1)) * kSlotBytes;
}

void SlotBoard::publish(std::uint32_t slot, SlotMark mark, std::span<const std::byte> payload) {
  KOLO_CHECK(slot < slots_ && payload.size() <= kPayloadBytesMax);
  const std::size_t offset = slot_offset(slot, mark.round);
  if (!payload.empty()) {
    std::memcpy(own_ + offset + kPayloadOffset, payload.data(), payload.size());
  }
  own_word(offset).store(mark.word(), std::memory_order_seq_cst);
}

void SlotBoard::announce(std::uint32_t slot, SlotMark mark) {
  // The leader has read what a slot's last round announced: only then does another one begin.
  const std::size_t place = announced_ % log_entries_ * sizeof(std::uint64_t);
  own_word(kAnnouncementsOffset + place)
      .store(SlotMark{mark.id, slot}.word(), std::memory_order_relaxed);
  own_word(kAnnouncedOffset).store(++announced_, std::memory_order_seq_cst);
}

const std::byte* SlotBoard::payload(int rank, std::uint32_t slot, SlotMark mark) const {
  return all_[static_cast<std::size_t>(rank)] + slot_offset(slot, mark.round) + kPayloadOffset;
}

bool SlotBoard::is_closed(std::uint32_t slot, SlotMark mark) const {
  const std::size_t offset = closed_offset(slots_) + slot * sizeof(std::uint64_t);
  const SlotMark from = SlotMark::of(word(0, offset).load(std::memory_order_seq_cst));
  return from.id == mark.id && !is_later_round(from.round, mark.round);
}

std::optional<LogEntry> SlotBoard::next_entry() const {
  if (word(0, kLogHeadOffset).load(std::memory_order_acquire) == followed_) return std::nullopt;
  const std::size_t place = followed_ % log_entries_ * sizeof(std::uint64_t);
  return entry_of(word(0, log_offset(slots_) + place).load(std::memory_order_relaxed));
}

std::uint64_t SlotBoard::log_end() const {
  return word(0, kLogHeadOffset).load(std::memory_order_acquire);
}

void SlotBoard::followed() {
  own_word(kFollowedOffset).store(++followed_, std::memory_order_release);
}

std::optional<SlotBoard::Announcement> SlotBoard::next_announcement(int rank) {
  std::uint64_t& taken = taken_[static_cast<std::size_t>(rank)];
  if (ignored_[static_cast<std::size_t>(rank)]) return std::nullopt;
  if (word(rank, kAnnouncedOffset).load(std::memory_order_acquire) == taken) return std::nullopt;
  const std::size_t place = taken++ % log_entries_ * sizeof(std::uint64_t);
  const SlotMark mark =
      SlotMark::of(word(rank, kAnnouncementsOffset + place).load(std::memory_order_relaxed));
  return Announcement{mark.round, mark.id};
}

std::uint32_t SlotBoard::last_round(int rank, std::uint32_t slot, std::uint32_t id) const {
  std::uint32_t last = 0;
  for (const std::uint32_t parity : {0U, 1U}) {
    const SlotMark mark =
        SlotMark::of(slot_word(rank, slot, parity).load(std::memory_order_seq_cst));
    if (mark.id == id && (last == 0 || is_later_round(mark.round, last))) last = mark.round;
  }
  return last;
}

void SlotBoard::close(std::uint32_t slot, SlotMark from) {
  own_word(closed_offset(slots_) + slot * sizeof(std::uint64_t))
      .store(from.word(), std::memory_order_seq_cst);
}

std::size_t SlotBoard::log_room() const {
  if (appended_ - slowest_ >= log_entries_ / 2) slowest_ = followed_by_all();
  return log_entries_ - (appended_ - slowest_);
}

std::uint64_t SlotBoard::followed_by_all() const {
  std::uint64_t least = appended_;
  for (int rank = 0; rank < size(); ++rank) {
    if (ignored_[static_cast<std::size_t>(rank)]) continue;
    least = std::min(least, word(rank, kFollowedOffset).load(std::memory_order_acquire));
  }
  return least;
}

bool SlotBoard::is_laggard(int rank) const {
  if (ignored_[static_cast<std::size_t>(rank)]) return false;
  return appended_ - word(rank, kFollowedOffset).load(std::memory_order_acquire) >=
         log_entries_ / 2;
}

void SlotBoard::append(const LogEntry& entry) {
  const std::size_t place = appended_++ % log_entries_ * sizeof(std::uint64_t);
  own_word(log_offset(slots_) + place).store(word_of(entry), std::memory_order_relaxed);
}

bool SlotBoard::flush_log() {
  Word& head = own_word(kLogHeadOffset);
  if (head.load(std::memory_order_relaxed) == appended_) return false;
  head.store(appended_, std::memory_order_seq_cst);
  return true;
}

}  // namespace kolo::internal
