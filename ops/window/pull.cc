#include "ops/window/pull.h"

#include "base/check.h"

namespace kolo::internal {

void WindowPull::start(WindowLane& lane, std::optional<int> root, const void* input, void* output,
                       std::size_t bytes, std::optional<std::size_t> arena_place,
                       std::span<const int> places) {
  KOLO_CHECK(!root || (*root >= 0 && *root < lane.size()));
  KOLO_CHECK(places.empty() || places.size() == static_cast<std::size_t>(lane.size()));
  root_ = root;
  arena_place_ = arena_place;
  places_.assign(places.begin(), places.end());
  input_ = static_cast<const std::byte*>(input);
  output_ = static_cast<std::byte*>(output);
  bytes_ = bytes;
  small_ = bytes <= WindowLane::kOneshotBytes;
  tiles_ = small_ ? 0 : segment_count(bytes, WindowLane::kTileBytes);
  begin(lane, tiles_);
  const bool source = is_source(rank());
  packed_ = source && !arena_place_ ? 0 : tiles_;
  kept_ = source && input_ != output_of(rank()) ? 0 : tiles_;
  pulled_ = 0;
  next_ = 1;
  read_arenas_ = false;
}

std::byte* WindowPull::output_of(int source) const {
  const auto s = static_cast<std::size_t>(source);
  if (!places_.empty()) return output_ + static_cast<std::size_t>(places_[s]) * bytes_;
  return root_ ? output_ : output_ + s * bytes_;
}

WindowLane::Places WindowPull::enter() {
  if (!is_source(rank())) return {};
  if (!small_) return {.input = arena_place_, .output = {}};
  lane().pack(input_, bytes_, lane().staging(bytes_));
  if (input_ != output_of(rank())) lane().unpack(input_, bytes_, output_of(rank()));
  return {};
}

bool WindowPull::step_small() {
  bool moved = false;
  for (; next_ < size(); ++next_) {
    const int source = (rank() + next_) % size();
    if (!is_source(source)) continue;
    if (!lane().entered(source)) return moved;
    lane().unpack(lane().staging(source, bytes_), bytes_, output_of(source));
    moved = true;
  }
  complete();
  return true;
}

// One tile of one source.
bool WindowPull::pull_next() {
  if (pulled_ == tiles_) return false;
  while (next_ < size() && !is_source((rank() + next_) % size())) ++next_;
  if (next_ < size()) {
    const int source = (rank() + next_) % size();
    if (!lane().entered(source)) return false;
    const Range range = tile_range(pulled_);
    const auto place = lane().places(source).input;
    if (!place && !lane().reached(WindowLane::kPacked, source, number(pulled_) + 1)) return false;
    read_arenas_ = read_arenas_ || place;
    lane().unpack(place ? lane().memory(source, *place + range.begin, range.count)
                        : lane().tile(source, number(pulled_)),
                  range.count, output_of(source) + range.begin);
    ++next_;
  }
  if (next_ < size()) return true;
  next_ = 1;
  ++pulled_;
  lane().publish(WindowLane::kTaken, number(pulled_));
  lane().publish(WindowLane::kPulled, number(pulled_));
  return true;
}

bool WindowPull::pack_tile() {
  if (packed_ == tiles_ || !lane().free(WindowLane::kTaken, number(packed_))) return false;
  const Range range = tile_range(packed_);
  lane().pack(input_ + range.begin, range.count, lane().tile(number(packed_)));
  lane().publish(WindowLane::kPacked, number(++packed_));
  return true;
}

bool WindowPull::keep_own() {
  if (kept_ == tiles_) return false;
  const Range range = tile_range(kept_++);
  lane().unpack(input_ + range.begin, range.count, output_of(rank()) + range.begin);
  return true;
}

bool WindowPull::nobody_reads_here() {
  return !is_source(rank()) || !arena_place_ ||
         lane().all_reached(WindowLane::kPulled, number(tiles_));
}

bool WindowPull::step() {
  if (small_) return step_small();
  const bool moved = pack_tile() || pull_next() || keep_own();
  if (packed_ == tiles_ && kept_ == tiles_ && pulled_ == tiles_ && nobody_reads_here() &&
      (!read_arenas_ || lane().nobody_gave_up())) {
    complete();
  }
  return moved;
}

}  // namespace kolo::internal
