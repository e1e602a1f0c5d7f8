#include "ops/window/reduce_scatter.h"

#include "base/check.h"

namespace kolo::internal {

void WindowReduceScatter::start(WindowLane& lane, const ReductionOrder& order, const Piece& piece,
                                std::span<const std::size_t> counts, const Reduction& reduction,
                                std::optional<std::size_t> arena_place) {
  group_.start({&piece, 1}, reduction, order, TensorGroup::Layout::kWhole,
               TensorGroup::Fusion::kParts);
  cut_.cut(counts, WindowLane::kTileBytes / group_.element_size());
  begin(lane, cut_.tiles());
  KOLO_CHECK(order.size() == size() && counts.size() == static_cast<std::size_t>(size()));
  KOLO_CHECK(cut_.elements() == piece.count);
  peers_.reset(lane);
  inputs_.resize(counts.size());
  arena_place_ = arena_place;
  packed_ = arena_place ? cut_.tiles() : 0;
  taken_ = 0;
}

bool WindowReduceScatter::take() {
  if (taken_ == cut_.tiles() || taken_ == packed_) return false;
  if (!peers_.tiles_are_here(number(taken_))) return false;
  const Range part = cut_.part(rank(), taken_);
  const std::size_t element = group_.element_size();
  for (int peer = 0; peer < size(); ++peer) {
    inputs_[static_cast<std::size_t>(peer)] =
        peer == rank() ? group_.input(part.begin)
                       : peers_.input(peer, part.begin * element, part.count * element,
                                      number(taken_), cut_.offset(rank()) * element);
  }
  group_.reduce(part, inputs_, group_.output(part.begin - cut_.block(rank()).begin));
  lane().publish(WindowLane::kTaken, number(++taken_));
  return true;
}

bool WindowReduceScatter::pack_tile() {
  if (packed_ == cut_.tiles() || !lane().free(WindowLane::kTaken, number(packed_))) return false;
  const std::size_t element = group_.element_size();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Range part = cut_.part(peer, packed_);
    lane().pack(group_, part, lane().tile(number(packed_)) + cut_.offset(peer) * element);
  }
  lane().publish(WindowLane::kPacked, number(++packed_));
  return true;
}

bool WindowReduceScatter::nobody_reads_here() {
  return !arena_place_ || lane().all_reached(WindowLane::kTaken, number(cut_.tiles()));
}

bool WindowReduceScatter::step() {
  const bool moved = (peers_.meet() && take()) || pack_tile();
  if (taken_ == cut_.tiles() && nobody_reads_here() && peers_.stand()) complete();
  return moved;
}

}  // namespace kolo::internal
