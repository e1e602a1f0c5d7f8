#include "ops/window/oneshot.h"

#include "base/check.h"

namespace kolo::internal {

void WindowOneshot::start(WindowLane& lane, const ReductionOrder& order,
                          std::span<const Piece> pieces, const Reduction& reduction) {
  begin(lane, 0);
  KOLO_CHECK(order.size() == size());
  group_.start(pieces, reduction, order, TensorGroup::Layout::kWhole, TensorGroup::Fusion::kParts);
  block_.reset();
  inputs_.resize(static_cast<std::size_t>(size()));
}

void WindowOneshot::start(WindowLane& lane, const ReductionOrder& order, const Piece& piece,
                          const Reduction& reduction, Range block) {
  start(lane, order, {&piece, 1}, reduction);
  block_ = block;
}

WindowLane::Places WindowOneshot::enter() {
  const std::size_t bytes = group_.elements() * group_.element_size();
  lane().pack(group_, {0, group_.elements()}, lane().staging(bytes));
  return {};
}

bool WindowOneshot::step() {
  if (!lane().all_entered()) return false;
  const std::size_t bytes = group_.elements() * group_.element_size();
  const std::size_t first = block_ ? block_->begin * group_.element_size() : 0;
  for (int peer = 0; peer < size(); ++peer) {
    inputs_[static_cast<std::size_t>(peer)] = lane().staging(peer, bytes) + first;
  }
  if (block_) {
    group_.reduce(*block_, inputs_, group_.output(0));
  } else {
    group_.reduce_to_pieces({0, group_.elements()}, inputs_);
  }
  complete();
  return true;
}

}  // namespace kolo::internal
