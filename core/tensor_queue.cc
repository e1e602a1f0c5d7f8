#include "core/tensor_queue.h"

#include <utility>

namespace kolo::internal {

void TensorQueue::submit(std::span<const RequestPtr> requests) {
  const std::lock_guard lock(mutex_);
  for (const RequestPtr& request : requests) queue_.emplace_back(request);
  pending_.store(queue_.size(), std::memory_order_seq_cst);
}

void TensorQueue::command(Command command) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(command));
  pending_.store(queue_.size(), std::memory_order_seq_cst);
}

void TensorQueue::close(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (!closed_.is_ok()) return;
  closed_ = status;
  is_closed_.store(true, std::memory_order_seq_cst);
}

std::vector<Command> TensorQueue::take() {
  if (empty()) return {};
  const std::lock_guard lock(mutex_);
  pending_.store(0, std::memory_order_seq_cst);
  return std::exchange(queue_, {});
}

Status TensorQueue::closed() const {
  if (!is_closed()) return Status::ok();
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace kolo::internal
