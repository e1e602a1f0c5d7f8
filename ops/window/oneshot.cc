#include "ops/window/oneshot.h"

#include "base/check.h"

namespace kolo::internal {

void WindowOneshot::start(WindowLane& lane, const ReductionOrder& order,
                          std::span<const Piece> pieces, DataType dtype, ReduceOp op) {
  begin(lane, 0);
  KOLO_CHECK(order.size() == size());
  group_.start(pieces, {dtype, op}, order, TensorGroup::Layout::kWhole, TensorGroup::Fusion::kParts);
  inputs_.resize(static_cast<std::size_t>(size()));
}

WindowLane::Places WindowOneshot::enter() {
  const std::size_t bytes = group_.elements() * group_.element_size();
  lane().pack(group_, {0, group_.elements()}, lane().staging(bytes));
  return {};
}

bool WindowOneshot::step() {
  if (!lane().all_entered()) return false;
  const std::size_t bytes = group_.elements() * group_.element_size();
  for (int peer = 0; peer < size(); ++peer) {
    inputs_[static_cast<std::size_t>(peer)] = lane().staging(peer, bytes);
  }
  group_.reduce_to_pieces({0, group_.elements()}, inputs_);
  complete();
  return true;
}

}  // namespace kolo::internal
