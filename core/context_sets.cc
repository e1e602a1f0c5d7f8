// JobContext: process sets and join.
#include <memory>
#include <utility>

#include "core/job_context.h"
#include "core/validate.h"

namespace kolo::internal {
namespace {

// A join is no unit; this is its name for timeline and log.
UnitPtr join_unit(std::uint32_t process_set) {
  auto unit = std::make_shared<Unit>();
  unit->key = {process_set, "#join"};
  return unit;
}

}  // namespace

// Every rank of the job makes it, in its world.
Result<ProcessSet*> JobContext::check_set_call(const Submission& submission) {
  if (submissions_.in_group()) {
    return invalid_argument(std::string(op_kind_name(submission.kind)) +
                            " inside a group; end the group first");
  }
  // The end of a set is told even when the world is no more: the set's other ranks may wait.
  Result<ProcessSet*> world = sets_.usable(0);
  const bool is_gone = sets_.world().left.load(std::memory_order_acquire);
  if (is_gone && submission.kind == OpKind::kDestroySet) world = sets_.find(0);
  if (!world) return world;
  Status status = validate_set(submission, size());
  if (status && submission.kind == OpKind::kDestroySet) {
    const std::int64_t id = submission.shape.front();
    status = id == 0 ? invalid_argument("process set 0, the world, cannot be destroyed")
                     : sets_.find(static_cast<std::int32_t>(id)).status();
  }
  return status ? world : Result<ProcessSet*>(refuse(submission, std::move(status)));
}

Result<RequestPtr> JobContext::begin_join(const Submission& submission) {
  if (submissions_.in_group()) {
    return invalid_argument("kolo_join inside a group; end the group first");
  }
  const bool plain = submission.name.empty() && submission.timeout == kNever &&
                     !submission.has_shape && !submission.allocate &&
                     submission.send_counts == nullptr && submission.receive_counts == nullptr &&
                     submission.participants == nullptr && submission.prescale == 1.0 &&
                     submission.postscale == 1.0;
  if (!plain) {
    return invalid_argument("kolo_join: of the options only pset and callback fit; leave the rest");
  }
  const Result<ProcessSet*> found = sets_.find(submission.process_set);
  if (!found) return found.status();
  ProcessSet& set = **found;
  KOLO_RETURN_IF_ERROR(queue_.closed());
  if (set.left.load(std::memory_order_acquire)) return set.left_status;
  if (set.place >= 0 && set.joined.exchange(true)) {
    return Status(StatusCode::kDuplicateName, "this rank has joined in " + set_text(set) +
                                                  " already; wait for that join to complete");
  }
  if (set.place < 0 || set.closing.load(std::memory_order_relaxed)) {
    set.joined.store(false, std::memory_order_relaxed);
    return ProcessSets::check_usable(set);
  }
  RequestPtr request = submissions_.request_of(submission, set);
  request->unit = join_unit(set.id);
  request->phase.store(RequestState::Phase::kRunning, std::memory_order_relaxed);
  return request;
}

Result<RequestId> JobContext::join(const Submission& submission) {
  const Result<RequestPtr> request = begin_join(submission);
  if (!request) return request.status();
  requests_.give_handle(*request);
  const RequestId id = (*request)->id;
  queue_.command(JoinCommand{*request});
  driver_.notice_queue();
  return id;
}

Status JobContext::run_join(const Submission& submission) {
  if (driver_.on_background()) {
    return {StatusCode::kWouldDeadlock,
            "a blocking kolo_join inside a callback: pass a request and wait for it elsewhere"};
  }
  const Result<RequestId> joined = join(submission);
  if (!joined) return joined.status();
  bool done = false;
  return wait(*joined, kNever, done);
}

Result<std::vector<int>> JobContext::ranks_of(std::int32_t process_set) const {
  const Result<ProcessSet*> set = sets_.find(process_set);
  if (!set) return set.status();
  return (*set)->ranks;
}

}  // namespace kolo::internal
