// The negotiator's part where a process set ends for this rank.
#include "coordinator/negotiator.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kEndedKept = 1024;

}  // namespace

// What is not ordered yet of the set is given up, on every rank at the same place of the stream.
Status Negotiator::end_set(std::uint32_t process_set) {
  Result<std::vector<Finished>> given_up = member_.end_set(process_set);
  if (!given_up) return given_up.status();
  for (Finished& one : *given_up) {
    actions_.emplace_back(Finish{one.ticket, std::move(one.status)});
  }
  if (followed_.in_set(process_set, rank_)) {
    ended_.emplace_back(process_set, followed_.ranks_of_set(process_set));
  }
  if (ended_.size() > kEndedKept) {
    member_.forget_runs(ended_.front().first);
    ended_.pop_front();
  }
  followed_.end_process_set(process_set);
  return Status::ok();
}

}  // namespace kolo::internal
