#include "tests/fakegpu/nccl/library.h"
#include "tests/fakegpu/per_thread.h"

#include <algorithm>
#include <mutex>
#include <set>

namespace fakegpu {
namespace {

struct Texts {
  std::mutex mutex;
  std::set<std::string> all{""};
  const std::string* last = &*all.begin();
};

Texts& texts() {
  static auto* const the_texts = std::make_unique<Texts>().release();
  return *the_texts;
}

}  // namespace

void keep_last_error(const std::string& text) {
  Texts& kept = texts();
  const std::lock_guard lock(kept.mutex);
  kept.last = &*kept.all.insert(text).first;
}

const char* last_error() {
  Texts& kept = texts();
  const std::lock_guard lock(kept.mutex);
  return kept.last->c_str();
}

NcclLibrary& nccl_library() {
  static auto* const the_library = std::make_unique<NcclLibrary>().release();
  return *the_library;
}

Group& Group::of_this_thread() {
  static auto* const groups = new PerThread<Group>();
  return groups->get();
}

int Group::end() {
  if (depth_ == 0) {
    machine().census.misuse("ncclGroupEnd: no group was started");
    return nccl::kInvalidUsage;
  }
  return --depth_ == 0 ? launch() : nccl::kSuccess;
}

void Group::add(const CommPointer& comm, Operation operation) {
  comm->group_owner = std::this_thread::get_id();
  auto found = std::find_if(members_.begin(), members_.end(),
                            [&comm](const Member& member) { return member.comm == comm; });
  if (found == members_.end()) found = members_.insert(found, {comm, {}});
  found->operations.push_back(std::move(operation));
}

void Group::add_initialisation(const CommPointer& comm, Comm::IdSource id,
                               std::function<void()> forget) {
  beginners_.push_back({comm, std::move(id), std::move(forget)});
}

int Group::launch() {
  std::vector<Member> members = std::move(members_);
  std::vector<Beginner> beginners = std::move(beginners_);
  members_.clear();
  beginners_.clear();
  for (const Member& member : members) member.comm->group_owner = std::thread::id();
  const int error = std::exchange(error_, nccl::kSuccess);
  if (error != nccl::kSuccess) {
    for (const Beginner& beginner : beginners) beginner.forget();
    return error;
  }
  int result = begin_all(std::move(beginners));
  for (Member& member : members) {
    const CommPointer comm = member.comm;
    if (comm->is_blocking()) {
      const int launched = comm->launch(std::move(member.operations));
      if (launched != nccl::kSuccess) result = launched;
      continue;
    }
    // As the real one: the launch happens later, and until then the communicator is taken.
    comm->post([comm = comm.get(), operations = std::move(member.operations)] {
      return comm->launch(operations);
    });
    if (result == nccl::kSuccess) result = nccl::kInProgress;
  }
  return result;
}

// All at once: they wait for each other.
int Group::begin_all(std::vector<Beginner> beginners) {
  int result = nccl::kSuccess;
  for (const Beginner& beginner : beginners) {
    Comm* comm = beginner.comm.get();
    comm->post([comm, id = beginner.id] { return comm->meet(id); });
    if (!comm->is_blocking()) result = nccl::kInProgress;
  }
  for (const Beginner& beginner : beginners) {
    if (!beginner.comm->is_blocking()) continue;
    const int error = beginner.comm->settle();
    if (error == nccl::kSuccess) continue;
    beginner.forget();
    result = error;
  }
  return result;
}

}  // namespace fakegpu
