// WindowOperation: what every collective over a window shares: entering in its turn, waking the
// others once per advance, ending, and the floating-point environment.
//
// A concrete collective says in step() what can be moved now; at most about one tile at a time.
// That a peer has died is not noticed here: the operation stays blocked, and whoever drives it
// looks at Window::lost() and cancels.
// Threads: one at a time (of each rank).
#pragma once

#include <cstddef>

#include "ops/operation.h"
#include "ops/tensor_group.h"
#include "ops/window/lane.h"

namespace kolo::internal {

class WindowOperation : public Operation {
 public:
  Result<Progress> advance() final;
  // The lane serves no operation after this: the others are in the middle of one.
  void cancel() final;
  // A start that could not get its memory, or has no lane: every advance() returns `status`.
  void fail(Status status);

 protected:
  // First thing in a start(): forgets the last run. Its tiles are first_tile() and those after it.
  void begin(WindowLane& lane, std::uint64_t tiles);

  // Called once, before the first step(): writes to the staging; what the others should know.
  virtual WindowLane::Places enter() = 0;
  // True if anything moved. Calls complete() when all is done.
  virtual bool step() = 0;
  void complete() { done_ = true; }

  [[nodiscard]] WindowLane& lane() const { return *lane_; }
  [[nodiscard]] int rank() const { return lane_->rank(); }
  [[nodiscard]] int size() const { return lane_->size(); }
  [[nodiscard]] std::uint64_t number(std::uint64_t tile) const { return first_tile_ + tile; }

 private:
  WindowLane* lane_ = nullptr;
  std::uint64_t first_tile_ = 0;
  Status failure_;
  bool entered_ = false;
  bool done_ = true;
};

}  // namespace kolo::internal
