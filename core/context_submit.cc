// JobContext: submitting, groups and persistent requests.
#include <algorithm>
#include <utility>

#include "core/few_requests.h"
#include "core/job_context.h"
#include "core/validate.h"

namespace kolo::internal {
namespace {

// With the call and the tensor in front.
Status named(const Submission& submission, const Status& status) {
  const std::string name = submission.name.empty() ? "" : " '" + std::string(submission.name) + "'";
  return {status.code(), std::string(op_kind_name(submission.kind)) + name + ": " + status.text()};
}

}  // namespace

// Where the buffers lie.
Status JobContext::place(Submission& submission) {
  if (submission.kind == OpKind::kBarrier || makes_or_ends_set(submission.kind) ||
      gpus_.is_on_host(submission.device)) {
    submission.device = kHostMemory;
    if (submission.stream == nullptr || !gpus_.is_off()) return Status::ok();
    return refuse(
        submission,
        named(submission,
              {StatusCode::kUnsupported,
               "options.stream is set, and the option cuda is off (KOLO_CUDA=off), so kolo takes "
               "all memory for the host's. Set it to auto, or give no stream"}));
  }
  const bool reads = submission.kind != OpKind::kBroadcast || submission.root == rank();
  const Result<std::int32_t> place =
      gpus_.place_of(submission.device, reads ? submission.input : nullptr, submission.output);
  submission.device = place ? *place : kHostMemory;
  return place ? Status::ok() : refuse(submission, named(submission, place.status()));
}

// Behind what is queued now on the stream.
Status JobContext::mark(Submission& submission) {
  if (submission.device == kHostMemory) return Status::ok();
  Result<cuda::EventRef> ready = gpus_.mark(submission.device, submission.stream);
  if (!ready) return refuse(submission, named(submission, ready.status()));
  submission.ready = *std::move(ready);
  return Status::ok();
}

void JobContext::expect_launches(RequestState& request) {
  const auto on_devices =
      std::count_if(request.buffers.begin(), request.buffers.end(),
                    [](const TensorBuffers& buffers) { return buffers.device != kHostMemory; });
  request.in_line = 0;
  request.launched.clear();
  request.unlaunched.store(static_cast<std::size_t>(on_devices), std::memory_order_relaxed);
}

Result<ProcessSet*> JobContext::check(const Submission& submission) {
  if (makes_or_ends_set(submission.kind)) return check_set_call(submission);
  const Result<ProcessSet*> found = sets_.usable(submission.process_set);
  if (!found) {
    if (submissions_.in_group()) submissions_.spoil_group(found.status(), nullptr);
    return found;
  }
  const ProcessSet& set = **found;
  const std::span<const int> ranks = set.id == 0 ? std::span<const int>() : set.ranks;
  Status status = validate(submission, set.size(), set.place, ranks);
  return status ? found : Result<ProcessSet*>(refuse(submission, std::move(status)));
}

Status JobContext::refuse(const Submission& submission, Status why) {
  const Result<ProcessSet*> set = sets_.usable(submission.process_set);
  if (submissions_.in_group()) {
    submissions_.spoil_group(why, set ? *set : nullptr);
  } else if (set && queue_.closed().is_ok() && size() > 1 && validate_name(submission.name)) {
    UnitPtr unit = submissions_.refused(submission, **set, why.text());
    if (units_.refuse(unit->key)) {
      queue_.command(RefusedUnit{std::move(unit)});
      driver_.notice_queue();
    }
  }
  return why;
}

Result<RequestPtr> JobContext::add_to_group(const Submission& submission, ProcessSet& set) {
  Result<RequestPtr> group = submissions_.add_to_group(submission, set);
  if (!group) submissions_.spoil_group(group.status(), &set);
  return group;
}

void JobContext::begin(const RequestPtr& request, std::string_view name) {
  trace_phase(trace_.get(), Trace::Phase::kEnqueue, request->id, name, clock_.now());
  if (request->timeout != kNever) request->deadline = clock_.now() + request->timeout;
}

// What has slipped in while the context, or the set, closed ends with it.
void JobContext::end_if_closed(const ProcessSet& set) {
  const bool all = queue_.is_closed();
  if (!all && !set.left.load(std::memory_order_seq_cst)) return;
  const Status status = all ? queue_.closed() : set.left_status;
  for (const RequestPtr& request :
       units_.give_up(all ? std::nullopt : std::optional<std::uint32_t>(set.id))) {
    completions_.finish(request, status);
  }
}

// Into its slot, if the unit is known and has one.
Result<UnitTable::Way> JobContext::publish(const RequestPtr& request,
                                           const Submission& submission) {
  if (submission.name.empty() || makes_or_ends_set(submission.kind)) {
    return UnitTable::Way::kQueue;
  }
  begin(request, submission.name);
  const Result<UnitTable::Way> way = units_.publish(request, request->set->id, submission);
  if (way && *way != UnitTable::Way::kQueue) end_if_closed(*request->set);
  return way;
}

Status JobContext::enqueue(std::span<const RequestPtr> requests, bool wake) {
  std::vector<RequestPtr> rest;
  KOLO_RETURN_IF_ERROR(units_.submit(requests, rest));
  for (const RequestPtr& request : requests) end_if_closed(*request->set);
  if (!rest.empty()) queue_.submit(rest);
  if (!wake) return Status::ok();
  if (!rest.empty()) {
    driver_.notice_queue();
  } else {
    driver_.notice_published(requests.back());
  }
  return Status::ok();
}

// What has not gone into a slot.
Status JobContext::negotiate(const RequestPtr& request, const Submission& submission, bool wake) {
  request->unit = submissions_.unit_of(submission, *request->set);
  if (submission.name.empty() || makes_or_ends_set(submission.kind)) {
    begin(request, request->unit->key.name);
  }
  KOLO_RETURN_IF_ERROR(enqueue({&request, 1}, wake));
  if (submission.kind == OpKind::kDestroySet) {
    const auto ending = sets_.find(static_cast<std::int32_t>(submission.shape.front()));
    if (ending) (*ending)->closing.store(true, std::memory_order_relaxed);
  }
  return Status::ok();
}

Result<RequestId> JobContext::submit(Submission submission) {
  KOLO_RETURN_IF_ERROR(place(submission));
  const Result<ProcessSet*> set = check(submission);
  if (!set) return set.status();
  KOLO_RETURN_IF_ERROR(mark(submission));
  if (submissions_.in_group()) {
    const Result<RequestPtr> group = add_to_group(submission, **set);
    if (!group) return group.status();
    requests_.give_handle(*group);
    return (*group)->id;
  }
  KOLO_RETURN_IF_ERROR(queue_.closed());
  const RequestPtr request = submissions_.request_of(submission, **set);
  if (submission.device != kHostMemory) expect_launches(*request);
  requests_.give_handle(request);
  Status status;
  const Result<UnitTable::Way> way = publish(request, submission);
  if (!way) {
    status = way.status();
  } else if (*way != UnitTable::Way::kQueue) {
    driver_.notice_published(request);
  } else {
    status = negotiate(request, submission, true);
  }
  if (status) return request->id;
  requests_.drop_handle(request->id);
  return status;
}

Status JobContext::run(Submission submission) {
  if (submission.allocate) {
    return refuse(submission, invalid_argument("allocate needs a request, which keeps the output; "
                                               "pass one"));
  }
  KOLO_RETURN_IF_ERROR(place(submission));
  const Result<ProcessSet*> set = check(submission);
  if (!set) return set.status();
  KOLO_RETURN_IF_ERROR(mark(submission));
  if (submissions_.in_group()) return add_to_group(submission, **set).status();
  if (driver_.on_background()) {
    return {StatusCode::kWouldDeadlock,
            "a blocking call inside a callback: pass a request and wait for it elsewhere"};
  }
  KOLO_RETURN_IF_ERROR(queue_.closed());
  const RequestPtr request = submissions_.request_of(submission, **set);
  if (submission.device != kHostMemory) expect_launches(*request);
  const Result<UnitTable::Way> way = publish(request, submission);
  if (!way) return way.status();
  if (*way == UnitTable::Way::kInline && driver_.await_inline(request)) return request->status;
  if (*way == UnitTable::Way::kQueue) {
    KOLO_RETURN_IF_ERROR(negotiate(request, submission, false));
  }
  if (submission.device != kHostMemory && submission.stream != nullptr) {
    return await_launch(request, submission.stream, kNever);
  }
  driver_.drive_until([&] { return request->done(); }, kNever);
  return request->status;
}

Result<RequestId> JobContext::group_end() {
  UnitPtr refused;
  const Result<RequestPtr> group = submissions_.close_group(sets_.world(), refused);
  if (!group) {
    if (refused != nullptr && queue_.closed().is_ok() && size() > 1 &&
        units_.refuse(refused->key)) {
      queue_.command(RefusedUnit{refused});
      driver_.notice_queue();
    }
    return group.status();
  }
  const RequestPtr& request = *group;
  expect_launches(*request);
  requests_.give_handle(request);
  Status status = queue_.closed();
  if (status) {
    begin(request, request->unit->key.name);
    status = enqueue({&request, 1}, true);
  }
  if (status) return request->id;
  requests_.drop_handle(request->id);
  request->status = status;  // for members' own handles
  request->phase = RequestState::Phase::kDone;
  return status;
}

Status JobContext::group_run() {
  if (driver_.on_background()) {
    return {
        StatusCode::kWouldDeadlock,
        "a blocking kolo_group_end inside a callback: pass a request and wait for it elsewhere"};
  }
  const Result<RequestId> group = group_end();
  if (!group) return group.status();
  bool done = false;
  return wait(*group, kNever, done);
}

// ---- Persistent requests ----------------------------------------------------------------------

Result<RequestId> JobContext::prepare(Submission submission) {
  if (submissions_.in_group()) {
    return refuse(submission, invalid_argument("a persistent operation cannot join a group. End "
                                               "the group first"));
  }
  if (submission.allocate || makes_or_ends_set(submission.kind)) {
    return refuse(submission, invalid_argument(std::string(op_kind_name(submission.kind)) +
                                               ": persistent does not fit it, nor allocate"));
  }
  KOLO_RETURN_IF_ERROR(place(submission));
  const Result<ProcessSet*> set = check(submission);
  if (!set) return set.status();
  if (submission.name.empty()) {
    return refuse(submission, invalid_argument("a persistent operation needs a name, by which the "
                                               "ranks pair it"));
  }
  const RequestPtr request = submissions_.request_of(submission, **set);
  request->unit = submissions_.unit_of(submission, **set);
  request->persistent = true;
  requests_.give_handle(request);
  return request->id;
}

// A persistent request's tensor.
Status JobContext::mark_again(RequestState& request) {
  TensorBuffers& buffers = request.buffers.front();
  if (buffers.device == kHostMemory) return Status::ok();
  Result<cuda::EventRef> ready = gpus_.mark(buffers.device, buffers.stream);
  if (!ready) {
    return {ready.status().code(), unit_text(*request.unit) + ": " + ready.status().text()};
  }
  buffers.ready = *std::move(ready);
  expect_launches(request);
  return Status::ok();
}

Status JobContext::start(std::span<const RequestId> requests) {
  FewRequests found;
  found.reserve(requests.size());
  for (const RequestId id : requests) {
    Result<RequestPtr> request = find(id);
    if (!request) return request.status();
    if (!(*request)->persistent) {
      return invalid_argument("request " + std::to_string(id) +
                              " is not persistent; it was started by its own call");
    }
    if ((*request)->phase == RequestState::Phase::kRunning) {
      return Status(StatusCode::kDuplicateName,
                    unit_text(*(*request)->unit) + ": is still under way. Wait for it first");
    }
    KOLO_RETURN_IF_ERROR(ProcessSets::check_usable(*(*request)->set));
    found.push_back(*std::move(request));
  }
  KOLO_RETURN_IF_ERROR(queue_.closed());
  for (const RequestPtr& request : found) KOLO_RETURN_IF_ERROR(mark_again(*request));
  for (const RequestPtr& request : found) begin(request, request->unit->key.name);
  return found.empty() ? Status::ok() : enqueue({found.data(), found.size()}, true);
}

}  // namespace kolo::internal
