// JobContext: waiting for requests, and what they hold.
#include <algorithm>
#include <utility>

#include "core/few_requests.h"
#include "core/job_context.h"

namespace kolo::internal {

Result<RequestPtr> JobContext::find(RequestId id) {
  RequestPtr request = requests_.find(id);
  if (request != nullptr) return request;
  return invalid_argument("request " + std::to_string(id) +
                          " is unknown: it was released already, or belongs to another context");
}

Status JobContext::wait(RequestId id, Nanos limit, bool& done) {
  const RequestId ids[] = {id};
  bool flags[] = {false};
  Status status = wait_all(ids, limit, flags);
  done = flags[0];
  return status;
}

Status JobContext::stream_wait(RequestId id, void* stream, Nanos limit) {
  Result<RequestPtr> request = find(id);
  if (!request) return request.status();
  const auto phase = (*request)->phase.load(std::memory_order_acquire);
  if (phase == RequestState::Phase::kOpen) {
    return {StatusCode::kWouldDeadlock,
            "request " + std::to_string(id) +
                " is a member of a group that is still open. Call kolo_group_end first"};
  }
  if (phase == RequestState::Phase::kIdle) return Status::ok();  // persistent, not started
  return await_launch(*request, stream, limit);
}

Status JobContext::await_launch(const RequestPtr& request, void* stream, Nanos limit) {
  // What has tensors in host memory is launched when it is done.
  const bool on_devices = std::ranges::all_of(
      request->buffers, [](const TensorBuffers& buffers) { return buffers.device != kHostMemory; });
  const auto launched = [&] { return on_devices ? request->is_launched() : request->done(); };
  if (!launched()) {
    if (driver_.on_background()) {
      return {StatusCode::kWouldDeadlock,
              "a stream's wait inside a callback for an operation that is not launched yet"};
    }
    const Nanos now = clock_.now();
    if (!driver_.drive_until(launched, limit == kNever ? kNever : now + limit)) {
      return {StatusCode::kInProgress, "the wait's limit has passed; the operation goes on"};
    }
  }
  const bool done = request->done();
  if (done && !request->status.is_ok()) return request->status;
  if (!on_devices) return Status::ok();
  const Status status =
      gpus_.await(stream, done ? std::span<const cuda::EventRef>() : request->launched);
  if (status) return status;
  return {status.code(), "a stream's wait for " + unit_text(*request->unit) + ": " + status.text()};
}

Status JobContext::test(RequestId id, bool& done) {
  done = false;
  Result<RequestPtr> request = find(id);
  if (!request) return request.status();
  if ((*request)->phase == RequestState::Phase::kRunning) driver_.drive_once();
  if ((*request)->phase == RequestState::Phase::kRunning) {  // no wait: fine in a callback, too
    return {StatusCode::kInProgress, "the operation goes on"};
  }
  return wait(id, 0ns, done);
}

Status JobContext::wait_all(std::span<const RequestId> ids, Nanos limit, std::span<bool> done) {
  FewRequests requests(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    done[i] = ids[i] == 0;
    if (ids[i] == 0) continue;
    Result<RequestPtr> request = find(ids[i]);
    if (!request) return request.status();
    if ((*request)->phase == RequestState::Phase::kOpen) {
      return {StatusCode::kWouldDeadlock,
              "request " + std::to_string(ids[i]) +
                  " is a member of a group that is still open. Call kolo_group_end first"};
    }
    requests[i] = *std::move(request);
  }
  std::size_t next = 0;  // all before it are complete
  const auto all_done = [&] {
    while (next < requests.size() &&
           (requests[next] == nullptr || requests[next]->phase != RequestState::Phase::kRunning)) {
      ++next;
    }
    return next == requests.size();
  };
  bool finished = all_done();
  if (!finished) {
    if (driver_.on_background()) {
      return {StatusCode::kWouldDeadlock,
              "waiting inside a callback for an operation that is still running"};
    }
    const Nanos now = clock_.now();
    finished = driver_.drive_until(all_done, limit == kNever ? kNever : now + limit);
  }
  Status first_error;
  bool in_progress = false;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == nullptr) continue;
    if (!finished && requests[i]->phase == RequestState::Phase::kRunning) {
      in_progress = true;
      continue;
    }
    done[i] = true;
    const bool has_run = requests[i]->phase == RequestState::Phase::kDone;
    if (has_run && first_error.is_ok()) first_error = requests[i]->status;
    if (!requests[i]->is_kept()) requests_.drop_handle(ids[i]);
  }
  if (!first_error.is_ok() || !in_progress) return first_error;
  return {StatusCode::kInProgress, "the wait's limit has passed; the operation goes on"};
}

Result<Context::Output> JobContext::output(RequestId id) {
  const Result<RequestPtr> found = find(id);
  if (!found) return found.status();
  const RequestState& request = **found;
  if (!request.allocates) {
    return invalid_argument("request " + std::to_string(id) +
                            " has no output of its own; set kolo_options.allocate for one");
  }
  if (!request.done()) {
    return invalid_argument("request " + std::to_string(id) +
                            " is not complete; wait for it before asking for its output");
  }
  if (!request.status.is_ok()) return request.status;
  return Output{request.buffers.front().output, request.output_count, request.output_counts.data()};
}

Status JobContext::release(RequestId id) {
  Result<RequestPtr> request = find(id);
  if (!request) return request.status();
  requests_.drop_handle(id);
  return Status::ok();
}

}  // namespace kolo::internal
