// Submissions: turns what callers ask for into requests: names and sequence numbers, open groups,
// persistent requests. Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "core/process_sets.h"
#include "core/request_state.h"

namespace kolo::internal {

class Submissions {
 public:
  explicit Submissions(RequestPool& pool) : pool_(pool) {}

  // A checked submission as a request of its own, without its unit.
  RequestPtr request_of(const Submission& submission, ProcessSet& set);
  // What the ranks are to agree on; draws a sequence number of the set if it has no name.
  UnitPtr unit_of(const Submission& submission, ProcessSet& set);
  // What to tell the other ranks of a submission that was refused here.
  UnitPtr refused(const Submission& submission, ProcessSet& set, const std::string& why);

  // Groups belong to the thread that opened them.
  Status open_group(std::string name);
  [[nodiscard]] bool in_group() const;
  // Adds to this thread's group, whose request it returns. DUPLICATE_NAME: a name given twice;
  // INVALID_ARGUMENT: of another process set than the members before.
  Result<RequestPtr> add_to_group(const Submission& submission, ProcessSet& set);
  // The group fails when it is ended: one of its members, of `set` if that is known, was refused.
  void spoil_group(const Status& why, ProcessSet* set);
  // The finished group, or why it cannot be submitted (the group is closed in any case);
  // `refused` then tells the others. A group without members is of `world`.
  Result<RequestPtr> close_group(ProcessSet& world, UnitPtr& refused);

 private:
  struct OpenGroup {
    std::string name;
    RequestPtr request;
    std::set<std::string> names;
    std::vector<std::pair<TensorSpec, TensorBuffers>> members;
    Status spoilt;
  };
  std::string set_call_name(const Submission& submission);

  RequestPool& pool_;
  mutable std::mutex mutex_;
  std::uint64_t sets_made_ = 0;                // without a name
  std::map<std::uint64_t, OpenGroup> groups_;  // by thread
  std::atomic<std::size_t> open_{0};           // of groups_
};

}  // namespace kolo::internal
