#include "ops/hosts/hosts_reduction.h"

#include <algorithm>

#include "base/check.h"

namespace kolo::internal {

void HostsReduction::begin_reduction(const Communicator& communicator, const HostsView& view,
                                     std::span<const Piece> pieces, const Reduction& reduction,
                                     std::optional<std::size_t> input_place) {
  begin(communicator);
  view_ = view;
  host_ = map().host(rank());
  KOLO_CHECK(map().size() == size() && hosts() > 1);
  KOLO_CHECK(lane().size() == map().local_size(host_) && lane().rank() == map().local(rank()));
  group_.start(pieces, reduction, *view.local, TensorGroup::Layout::kWhole,
               TensorGroup::Fusion::kParts);
  group_.compose(*view.across, size());
  input_place_ = input_place;
  whole_input_ = pieces.size() == 1 && (alone() || input_place);
  peers_.reset(lane());
  partials_.resize(static_cast<std::size_t>(hosts()));
  for (int h = 0; h < hosts(); ++h) {
    partials_[static_cast<std::size_t>(h)] = map().local_size(h) > 1 ? 1 : 0;
  }
  inputs_.resize(static_cast<std::size_t>(std::max(hosts(), lane().size())));
  entered_ = false;
}

void HostsReduction::use(std::uint64_t tiles) {
  first_tile_ = lane().begin();
  lane().use(tiles);
}

std::size_t HostsReduction::widest() const {
  return std::max(group_.kernel().accumulator_bytes, element());
}

std::size_t HostsReduction::partial_bytes(int of_host) const {
  return partials_[static_cast<std::size_t>(of_host)] != 0 ? group_.kernel().accumulator_bytes
                                                           : element();
}

bool HostsReduction::tiles_are_here(std::uint64_t tile) {
  return peers_.meet() && peers_.tiles_are_here(number(tile));
}

const std::byte* HostsReduction::contribution(int local, std::uint64_t tile, Range range,
                                              std::size_t offset) const {
  if (local == lane().rank() && !group_.fused()) return group_.input(range.begin);
  return peers_.input(local, range.begin * element(), range.count * element(), number(tile),
                      offset * element());
}

void HostsReduction::make_partial(std::uint64_t tile, Range range, std::size_t offset,
                                  std::byte* partial) {
  const auto ranks = static_cast<std::size_t>(lane().size());
  for (std::size_t local = 0; local < ranks; ++local) {
    inputs_[local] = contribution(static_cast<int>(local), tile, range, offset);
  }
  group_.reduce_partial(range, std::span(inputs_).first(ranks), partial);
}

bool HostsReduction::enter() {
  if (entered_) return false;
  if (!lane().may_enter()) return false;
  lane().enter({.input = input_place_, .output = {}});
  entered_ = true;
  return true;
}

bool HostsReduction::step() {
  bool moved = enter();
  if (entered_) {
    moved = move() || moved;
    if (finished()) {
      lane().finish();
      complete();
    }
  }
  lane().ring();
  return moved;
}

void HostsReduction::abandoned() {
  if (view_.lane != nullptr) view_.lane->give_up();
}

}  // namespace kolo::internal
