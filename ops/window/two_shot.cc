#include "ops/window/two_shot.h"

#include "base/check.h"

namespace kolo::internal {

void WindowTwoShot::start(WindowLane& lane, const ReductionOrder& order,
                          std::span<const Piece> pieces, const Reduction& reduction,
                          const WindowLane::Places& places) {
  group_.start(pieces, reduction, order, TensorGroup::Layout::kWhole, TensorGroup::Fusion::kParts);
  tile_elements_ = WindowLane::kTileBytes / group_.element_size();
  tiles_ = segment_count(group_.elements(), tile_elements_);
  begin(lane, tiles_);
  KOLO_CHECK(order.size() == size());
  places_ = places;
  peers_.reset(lane);
  inputs_.resize(static_cast<std::size_t>(size()));
  packed_ = places.input ? tiles_ : 0;
  taken_ = 0;
  pulled_ = 0;
}

Range WindowTwoShot::tile_range(std::uint64_t tile) const {
  return segment_of({0, group_.elements()}, tile_elements_, static_cast<std::size_t>(tile));
}

Range WindowTwoShot::share(std::uint64_t tile, int owner) const {
  return line_slice(tile_range(tile), kCacheLineBytes / group_.element_size(),
                    static_cast<std::size_t>(size()), static_cast<std::size_t>(owner));
}

std::size_t WindowTwoShot::offset_in(std::uint64_t tile, Range range) const {
  return (range.begin - tile_range(tile).begin) * group_.element_size();
}

bool WindowTwoShot::take() {
  if (taken_ == tiles_ || taken_ == packed_) return false;
  if (!places_.output && !lane().free(WindowLane::kPulled, number(taken_))) return false;
  if (!peers_.tiles_are_here(number(taken_))) return false;
  const Range range = share(taken_, rank());
  const std::size_t offset = offset_in(taken_, range);
  const std::size_t element = group_.element_size();
  for (int peer = 0; peer < size(); ++peer) {
    const bool where_it_lies = peer == rank() && !group_.fused();
    inputs_[static_cast<std::size_t>(peer)] =
        where_it_lies ? group_.input(range.begin)
                      : peers_.input(peer, range.begin * element, range.count * element,
                                     number(taken_), offset);
  }
  if (places_.output) {
    group_.reduce(range, inputs_, group_.output(range.begin));
  } else {
    std::byte* result = lane().result(number(taken_)) + offset;
    group_.reduce(range, inputs_, result);
    lane().unpack(group_, range, result);
  }
  lane().publish(WindowLane::kTaken, number(++taken_));
  return true;
}

bool WindowTwoShot::pull() {
  if (pulled_ == taken_ || !lane().all_reached(WindowLane::kTaken, number(pulled_) + 1)) {
    return false;
  }
  for (int i = 1; i < size(); ++i) {  // each rank begins with another
    const int peer = (rank() + i) % size();
    const Range range = share(pulled_, peer);
    const auto& place = peers_.places(peer).output;
    lane().unpack(group_, range,
                  place ? lane().memory(peer, *place + range.begin * group_.element_size(),
                                        range.count * group_.element_size())
                        : lane().result(peer, number(pulled_)) + offset_in(pulled_, range));
  }
  lane().publish(WindowLane::kPulled, number(++pulled_));
  return true;
}

bool WindowTwoShot::pack_tile() {
  if (packed_ == tiles_ || !lane().free(WindowLane::kTaken, number(packed_))) return false;
  const Range tile = tile_range(packed_);
  if (group_.fused()) {
    pack(tile);
  } else {
    const Range own = share(packed_, rank());
    pack({tile.begin, own.begin - tile.begin});
    pack({own.end(), tile.end() - own.end()});
  }
  lane().publish(WindowLane::kPacked, number(++packed_));
  return true;
}

void WindowTwoShot::pack(Range range) {
  if (range.count == 0) return;
  lane().pack(group_, range, lane().tile(number(packed_)) + offset_in(packed_, range));
}

bool WindowTwoShot::step() {
  // What others have reduced is pulled while it is still in a cache.
  const bool moved = (peers_.meet() && (pull() || take())) || pack_tile();
  const bool read_by_others = places_.input || places_.output;
  if (pulled_ == tiles_ &&
      (!read_by_others || lane().all_reached(WindowLane::kPulled, number(tiles_))) &&
      peers_.stand()) {
    complete();
  }
  return moved;
}

}  // namespace kolo::internal
