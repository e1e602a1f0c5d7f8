// PeerTensors: where the ranks of a window have their tensors for one operation: in their arenas,
// or tile by tile in their rings. What reductions in tiles share.
//
// Threads: one at a time. Allocates nothing once warm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/window/lane.h"

namespace kolo::internal {

class PeerTensors {
 public:
  // First thing in a run; the lane outlives it.
  void reset(WindowLane& lane);

  // Whether all have entered; learns what they have posted.
  bool meet();
  [[nodiscard]] const WindowLane::Places& places(int peer) const {  // of who has been met
    return places_[static_cast<std::size_t>(peer)];
  }
  // Whether tile `number` of all others can be read, wherever it is.
  [[nodiscard]] bool tiles_are_here(std::uint64_t number);
  // `bytes` of the input of `peer` that begin at `begin`, and at `offset` of its tile `number`.
  [[nodiscard]] const std::byte* input(int peer, std::size_t begin, std::size_t bytes,
                                       std::uint64_t number, std::size_t offset) const;
  // Whether what has been read where it lies was still its owner's contribution.
  [[nodiscard]] bool stand() const { return !read_arenas_ || lane_->nobody_gave_up(); }

 private:
  WindowLane* lane_ = nullptr;
  std::vector<WindowLane::Places> places_;  // by rank; of those below met_
  int met_ = 0;
  bool read_arenas_ = false;  // of others
};

}  // namespace kolo::internal
