#include "ops/window/window_operation.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "ops/mxcsr_guard.h"

namespace kolo::internal {

void WindowOperation::begin(WindowLane& lane, std::uint64_t tiles) {
  KOLO_CHECK(done_ || !failure_.is_ok());
  lane_ = &lane;
  first_tile_ = lane.begin(tiles);
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

bool WindowOperation::nobody_gave_up() const {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank() && lane_->given_up(peer)) return false;
  }
  return true;
}

void WindowOperation::pack(const TensorGroup& group, Range range, std::byte* to) {
  group.pack(range, to);
  lane_->count().bytes_packed += range.count * group.element_size();
}

void WindowOperation::unpack(const TensorGroup& group, Range range, const std::byte* from) {
  group.unpack(range, from);
  lane_->count().bytes_unpacked += range.count * group.element_size();
}

void WindowOperation::pack(const std::byte* from, std::size_t bytes, std::byte* to) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  lane_->count().bytes_packed += bytes;
}

void WindowOperation::unpack(const std::byte* from, std::size_t bytes, std::byte* to) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  lane_->count().bytes_unpacked += bytes;
}

}  // namespace kolo::internal
