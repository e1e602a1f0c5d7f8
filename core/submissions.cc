#include "core/submissions.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/validate.h"

namespace kolo::internal {
namespace {

TensorSpec spec_of(const Submission& submission, std::string name) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.kind = submission.kind;
  spec.dtype = submission.dtype;
  spec.op = submission.op;
  spec.root = submission.root;
  spec.count = submission.count;
  spec.shape.assign(submission.shape.begin(), submission.shape.end());
  if (!submission.has_shape) spec.shape = {static_cast<std::int64_t>(submission.count)};
  spec.prescale = submission.prescale;
  spec.postscale = submission.postscale;
  return spec;
}

// The system may give a new thread the id of one that has ended, with a group left open.
std::uint64_t this_thread_number() {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = ++threads;
  return number;
}

}  // namespace

std::string Submissions::next_number() { return "#" + std::to_string(numbers_++); }

RequestPtr Submissions::request_of(const Submission& submission) {
  RequestPtr request = pool_.make();
  request->buffers.push_back({submission.input, submission.output});
  if (submission.callback) request->callbacks.push_back(submission.callback);
  request->timeout = submission.timeout;
  return request;
}

UnitPtr Submissions::unit_of(const Submission& submission) {
  auto unit = std::make_shared<Unit>();
  unit->numbered = submission.name.empty();
  unit->key.name = submission.name;
  if (unit->numbered) {
    const std::lock_guard lock(mutex_);
    unit->key.name = next_number();
  }
  unit->tensors.push_back(spec_of(submission, unit->key.name));
  return unit;
}

UnitPtr Submissions::refused(const Submission& submission, const std::string& why) {
  auto unit = std::make_shared<Unit>(*unit_of(submission));
  unit->invalid = why;
  return unit;
}

Status Submissions::open_group(std::string name) {
  if (!name.empty()) KOLO_RETURN_IF_ERROR(validate_name(name));
  const std::lock_guard lock(mutex_);
  const auto [it, is_new] = groups_.try_emplace(this_thread_number());
  if (!is_new) {
    return invalid_argument("a group is open on this thread already ('" + it->second.name +
                            "'); groups do not nest. End it first");
  }
  it->second.name = std::move(name);
  open_.fetch_add(1, std::memory_order_relaxed);
  it->second.request = pool_.make();
  it->second.request->phase = RequestState::Phase::kOpen;
  return Status::ok();
}

bool Submissions::in_group() const {
  if (open_.load(std::memory_order_relaxed) == 0) return false;  // this thread's would be seen
  const std::lock_guard lock(mutex_);
  return groups_.contains(this_thread_number());
}

Result<RequestPtr> Submissions::add_to_group(const Submission& submission) {
  const std::lock_guard lock(mutex_);
  OpenGroup& group = groups_.at(this_thread_number());
  std::string name = submission.name.empty() ? "#" + std::to_string(group.members.size())
                                             : std::string(submission.name);
  if (!group.names.insert(name).second) {
    return Status(StatusCode::kDuplicateName,
                  "'" + name + "' is in this group already. Give each member its own name");
  }
  group.members.emplace_back(spec_of(submission, std::move(name)),
                             TensorBuffers{submission.input, submission.output});
  group.request->timeout = std::min(group.request->timeout, submission.timeout);
  if (submission.callback) group.request->callbacks.push_back(submission.callback);
  return group.request;
}

void Submissions::spoil_group(const Status& why) {
  const std::lock_guard lock(mutex_);
  OpenGroup& group = groups_.at(this_thread_number());
  if (group.spoilt.is_ok()) group.spoilt = why;
}

Result<RequestPtr> Submissions::close_group(UnitPtr& refused) {
  const std::lock_guard lock(mutex_);
  const auto it = groups_.find(this_thread_number());
  if (it == groups_.end()) {
    return invalid_argument("no group is open on this thread. Call kolo_group_begin first");
  }
  OpenGroup group = std::move(it->second);
  groups_.erase(it);
  open_.fetch_sub(1, std::memory_order_relaxed);
  auto unit = std::make_shared<Unit>();
  unit->group = true;
  unit->numbered = group.name.empty();
  unit->key.name = unit->numbered ? next_number() : group.name;
  std::sort(group.members.begin(), group.members.end(),
            [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
  for (auto& [spec, buffers] : group.members) {
    unit->tensors.push_back(std::move(spec));
    group.request->buffers.push_back(buffers);
  }
  unit->invalid = group.spoilt.text();
  if (!group.spoilt.is_ok()) {
    refused = std::move(unit);
    group.request->status = group.spoilt;  // for those who hold a member's handle
    group.request->phase = RequestState::Phase::kDone;
    return group.spoilt;
  }
  group.request->unit = std::move(unit);
  return group.request;
}

}  // namespace kolo::internal
