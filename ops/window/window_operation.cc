#include "ops/window/window_operation.h"

#include <utility>

#include "base/check.h"
#include "ops/mxcsr_guard.h"

namespace kolo::internal {

void WindowOperation::begin(WindowLane& lane, std::uint64_t tiles) {
  KOLO_CHECK(done_ || !failure_.is_ok());
  lane_ = &lane;
  first_tile_ = lane.begin();
  lane.use(tiles);
  failure_ = Status::ok();
  entered_ = false;
  done_ = false;
}

Result<Progress> WindowOperation::advance() {
  if (!failure_.is_ok()) return failure_;
  if (done_) return Progress::kDone;
  const MxcsrGuard guard;
  const bool entering = !entered_;
  if (entering) {
    if (!lane_->may_enter()) return Progress::kBlocked;
    lane_->enter(enter());
    entered_ = true;
  }
  const bool moved = step();
  if (done_) lane_->finish();
  lane_->ring();
  if (done_) return Progress::kDone;
  return entering || moved ? Progress::kMoved : Progress::kBlocked;
}

void WindowOperation::fail(Status status) {
  if (lane_ != nullptr) lane_->give_up();
  failure_ = std::move(status);
}

void WindowOperation::cancel() {
  if (!done_ && failure_.is_ok()) fail(aborted("the operation was cancelled"));
}

}  // namespace kolo::internal
