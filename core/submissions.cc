#include "core/submissions.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "core/validate.h"

namespace kolo::internal {
namespace {

TensorBuffers buffers_of(const Submission& submission) {
  TensorBuffers buffers;
  buffers.input = submission.input;
  buffers.output = submission.output;
  buffers.device = submission.device;
  buffers.stream = submission.stream;
  buffers.ready = submission.ready;
  buffers.participants = submission.participants;
  buffers.nonfinite = submission.nonfinite;
  return buffers;
}

std::vector<std::uint64_t> list_of(const std::size_t* counts, const ProcessSet& set) {
  if (counts == nullptr) return {};
  return {counts, counts + set.size()};
}

// What the ranks are told of the elements that go from rank to rank.
void give_counts(const Submission& submission, const ProcessSet& set, TensorSpec& spec) {
  if (submission.kind == OpKind::kAlltoall) {
    spec.counts = list_of(submission.send_counts, set);
    spec.receive_counts = list_of(submission.receive_counts, set);
    if (submission.allocate && spec.counts.empty()) {
      spec.counts.assign(set.ranks.size(), submission.count);
      spec.count = submission.count * set.ranks.size();
    }
    return;
  }
  spec.counts = list_of(submission.receive_counts, set);
  spec.open = submission.allocate;
  // With a list, what differs between the ranks is in the list.
  if (spec.counts.empty()) return;
  spec.count = std::accumulate(spec.counts.begin(), spec.counts.end(), std::uint64_t{0});
  if (submission.has_shape) {
    spec.shape.front() = -1;
  } else {
    spec.shape = {-1};
  }
}

TensorSpec spec_of(const Submission& submission, const ProcessSet& set, std::string name) {
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
  spec.device = submission.device;
  give_counts(submission, set, spec);
  return spec;
}

std::string next_name(ProcessSet& set) {
  return "#" + std::to_string(set.next_number.fetch_add(1, std::memory_order_relaxed));
}

// The system may give a new thread the id of one that has ended, with a group left open.
std::uint64_t this_thread_number() {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = ++threads;
  return number;
}

}  // namespace

RequestPtr Submissions::request_of(const Submission& submission, ProcessSet& set) {
  RequestPtr request = pool_.make();
  request->set = &set;
  request->number = submission.number;
  request->allocates = submission.allocate;
  request->buffers.push_back(buffers_of(submission));
  if (submission.callback) request->callbacks.push_back(submission.callback);
  request->timeout = submission.timeout;
  return request;
}

UnitPtr Submissions::unit_of(const Submission& submission, ProcessSet& set) {
  auto unit = std::make_shared<Unit>();
  unit->key.process_set = set.id;
  unit->key.name = submission.name;
  unit->numbered = submission.name.empty();
  if (submission.kind == OpKind::kCreateSet || submission.kind == OpKind::kDestroySet) {
    unit->key.name = set_call_name(submission);
    unit->numbered = true;
  } else if (unit->numbered) {
    unit->key.name = next_name(set);
  }
  unit->tensors.push_back(spec_of(submission, set, unit->key.name));
  return unit;
}

// Calls that end a set pair by the set, those that make one by their name or number.
std::string Submissions::set_call_name(const Submission& submission) {
  if (submission.kind == OpKind::kDestroySet) {
    return "#destroy:" + std::to_string(submission.shape.front());
  }
  if (!submission.name.empty()) return "#pset:" + std::string(submission.name);
  const std::lock_guard lock(mutex_);
  return "#pset:#" + std::to_string(sets_made_++);
}

UnitPtr Submissions::refused(const Submission& submission, ProcessSet& set,
                             const std::string& why) {
  auto unit = std::make_shared<Unit>(*unit_of(submission, set));
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

Result<RequestPtr> Submissions::add_to_group(const Submission& submission, ProcessSet& set) {
  const std::lock_guard lock(mutex_);
  OpenGroup& group = groups_.at(this_thread_number());
  if (submission.allocate) {
    return invalid_argument("allocate does not fit a group; submit '" +
                            std::string(submission.name) + "' outside of it");
  }
  if (group.request->set == nullptr) group.request->set = &set;
  if (group.request->set != &set) {
    return invalid_argument("the members of a group are of one process set, and '" +
                            std::string(submission.name) + "' is of " + set_text(set) + ", not " +
                            set_text(*group.request->set) + ". Make a group for each set");
  }
  std::string name = submission.name.empty() ? "#" + std::to_string(group.members.size())
                                             : std::string(submission.name);
  if (!group.names.insert(name).second) {
    return Status(StatusCode::kDuplicateName,
                  "'" + name + "' is in this group already. Give each member its own name");
  }
  group.members.emplace_back(spec_of(submission, set, std::move(name)), buffers_of(submission));
  group.request->timeout = std::min(group.request->timeout, submission.timeout);
  if (submission.callback) group.request->callbacks.push_back(submission.callback);
  return group.request;
}

void Submissions::spoil_group(const Status& why, ProcessSet* set) {
  const std::lock_guard lock(mutex_);
  OpenGroup& group = groups_.at(this_thread_number());
  if (group.request->set == nullptr) group.request->set = set;  // whose ranks are to be told
  if (group.spoilt.is_ok()) group.spoilt = why;
}

Result<RequestPtr> Submissions::close_group(ProcessSet& world, UnitPtr& refused) {
  const std::lock_guard lock(mutex_);
  const auto it = groups_.find(this_thread_number());
  if (it == groups_.end()) {
    return invalid_argument("no group is open on this thread. Call kolo_group_begin first");
  }
  OpenGroup group = std::move(it->second);
  groups_.erase(it);
  open_.fetch_sub(1, std::memory_order_relaxed);
  if (group.request->set == nullptr) group.request->set = &world;
  auto unit = std::make_shared<Unit>();
  unit->group = true;
  unit->key.process_set = group.request->set->id;
  unit->numbered = group.name.empty();
  unit->key.name = unit->numbered ? next_name(*group.request->set) : group.name;
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
