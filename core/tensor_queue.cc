#include "core/tensor_queue.h"

#include <utility>

namespace kolo::internal {

Status TensorQueue::submit(std::span<const RequestPtr> requests) {
  const std::lock_guard lock(mutex_);
  if (!closed_.is_ok()) return closed_;
  if (under_way_.size() + requests.size() > kMaxUnderWay) {
    return resource_error("more than " + std::to_string(kMaxUnderWay) +
                          " operations are under way on this rank. Wait for some of them");
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (under_way_.insert(requests[i]->unit->key).second) continue;
    for (std::size_t j = 0; j < i; ++j) under_way_.erase(requests[j]->unit->key);
    return {StatusCode::kDuplicateName,
            unit_text(*requests[i]->unit) +
                ": an operation of this name is still under way on this rank. Wait for it, or use "
                "another name"};
  }
  for (const RequestPtr& request : requests) {
    request->phase.store(RequestState::Phase::kRunning, std::memory_order_relaxed);
    queue_.emplace_back(request);
  }
  pending_.store(queue_.size(), std::memory_order_seq_cst);
  return Status::ok();
}

void TensorQueue::command(Command command) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(command));
  pending_.store(queue_.size(), std::memory_order_seq_cst);
}

void TensorQueue::close(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (closed_.is_ok()) closed_ = status;
}

void TensorQueue::ended(RequestState& request) {
  const std::lock_guard lock(mutex_);
  under_way_.erase(request.unit->key);
  request.phase.store(RequestState::Phase::kDone, std::memory_order_seq_cst);
}

std::vector<Command> TensorQueue::take() {
  if (empty()) return {};
  const std::lock_guard lock(mutex_);
  pending_.store(0, std::memory_order_seq_cst);
  return std::exchange(queue_, {});
}

Status TensorQueue::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace kolo::internal
