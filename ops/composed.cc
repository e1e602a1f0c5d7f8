#include "ops/composed.h"

#include <utility>

#include "base/check.h"
#include "ops/collectives.h"
#include "ops/mxcsr_guard.h"

namespace kolo::internal {

void ComposedOperation::begin(Collectives& collectives, std::uint32_t sequence) {
  KOLO_CHECK(done_ || !failure_.is_ok());
  collectives_ = &collectives;
  sequence_ = sequence;
  running_ = nullptr;
  failure_ = Status::ok();
  done_ = false;
}

Result<Progress> ComposedOperation::advance() {
  if (!failure_.is_ok()) return failure_;
  if (done_) return Progress::kDone;
  if (running_ != nullptr) {
    Result<Progress> progress = running_->advance();
    if (!progress) {
      failure_ = progress.status();
      return failure_;
    }
    if (*progress != Progress::kDone) return progress;
    running_ = nullptr;
  }
  const MxcsrGuard guard;
  idle_ = false;
  step();
  if (!failure_.is_ok()) return failure_;
  if (done_) return Progress::kDone;
  return idle_ ? Progress::kBlocked : Progress::kMoved;
}

void ComposedOperation::fail(Status status) {
  // Between two collectives the road is given up by one that says nothing.
  if (running_ == nullptr)
    running_ = &collectives_->start_broadcast(sequence_, 0, BroadcastPiece{});
  running_->cancel();
  failure_ = std::move(status);
}

void ComposedOperation::cancel() {
  if (!done_ && failure_.is_ok()) fail(aborted("the operation was cancelled"));
}

}  // namespace kolo::internal
