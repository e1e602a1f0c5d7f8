#include "ops/window/pull.h"

#include <algorithm>

#include "base/check.h"

namespace kolo::internal {

void WindowPull::begin_pull(WindowLane& lane, const Pulled& pulled) {
  KOLO_CHECK(pulled.from.size() == static_cast<std::size_t>(lane.size()));
  from_.assign(pulled.from.begin(), pulled.from.end());
  begin(lane, 0);
  output_ = pulled.output;
  own_input_ = pulled.own_input;
  arena_place_ = pulled.arena_place;
  part_bytes_ = pulled.part_bytes;
  part_offset_ = pulled.part_offset;
  const Block& own = from(rank());
  kept_ = own_input_ == output_ + own.offset ? own.bytes : 0;
  tiles_ = own_tiles_ = rounds_ = packed_ = pulled_ = 0;
  next_ = 1;
  read_arenas_ = false;
}

void WindowPull::set_tiles(std::uint64_t tiles, std::uint64_t own_tiles) {
  tiles_ = tiles;
  own_tiles_ = own_tiles;
  rounds_ = std::max<std::uint64_t>(tiles, 1);
  lane().use(tiles);
}

// Where a part of what a source has for this rank can be read; null if not yet.
const std::byte* WindowPull::find(int source, Range part) {
  if (!lane().entered(source)) return nullptr;
  if (const std::byte* block = staged(source)) return block + part.begin;
  if (const auto place = lane().places(source).input) {
    read_arenas_ = true;
    return lane().memory(source, *place + input_offset(source) + part.begin, part.count);
  }
  if (!lane().reached(WindowLane::kPacked, source, number(pulled_) + 1)) return nullptr;
  return lane().tile(source, number(pulled_)) + part_offset_;
}

// Of one round, a tile's bytes at most.
bool WindowPull::pull_next() {
  if (pulled_ == rounds_) return false;
  std::size_t copied = 0;
  for (; next_ < size(); ++next_) {
    const int source = (rank() + next_) % size();
    const Block& block = from(source);
    const Range part = segment_of({0, block.bytes}, part_bytes_, static_cast<std::size_t>(pulled_));
    if (part.count == 0) continue;
    if (copied > 0 && copied + part.count > WindowLane::kTileBytes) return true;
    const std::byte* bytes = find(source, part);
    if (bytes == nullptr) return copied > 0;
    lane().unpack(bytes, part.count, output_ + block.offset + part.begin);
    copied += part.count;
  }
  next_ = 1;
  ++pulled_;
  lane().publish(WindowLane::kTaken, number(std::min(pulled_, tiles_)));
  return true;
}

bool WindowPull::pack_next() {
  if (packed_ == own_tiles_ || !lane().free(WindowLane::kTaken, number(packed_))) return false;
  pack(packed_);
  lane().publish(WindowLane::kPacked, number(++packed_));
  return true;
}

bool WindowPull::keep_own() {
  const Block& own = from(rank());
  const std::size_t bytes = std::min(own.bytes - kept_, WindowLane::kTileBytes);
  if (bytes == 0) return false;
  lane().unpack(own_input_ + kept_, bytes, output_ + own.offset + kept_);
  kept_ += bytes;
  return true;
}

bool WindowPull::nobody_reads_here() {
  return !arena_place_ || lane().all_reached(WindowLane::kTaken, number(tiles_));
}

bool WindowPull::step() {
  bool moved = pack_next() || pull_next() || keep_own();
  while (tiles_ == 0 && (pull_next() || keep_own())) moved = true;
  if (packed_ == own_tiles_ && pulled_ == rounds_ && kept_ == from(rank()).bytes &&
      nobody_reads_here() && (!read_arenas_ || lane().nobody_gave_up())) {
    complete();
  }
  return moved;
}

}  // namespace kolo::internal
