// The negotiator's part where a rank leaves, or a process set ends: what is given up.
#include "coordinator/negotiator.h"

#include <limits>

namespace kolo::internal {
namespace {

constexpr std::size_t kEndedKept = 1024;

}  // namespace

// Sets that are of no use without the rank: it is one of theirs, or their sequencer, or passes the
// stream on to some of theirs. The others live on.
void Negotiator::rank_leaves(const Notice& notice) {
  const Status cause =
      aborted("rank " + std::to_string(notice.rank) +
              " has shut its context down. Wait for every operation on all ranks before any rank "
              "calls kolo_shutdown");
  const auto concerned = [&](std::uint32_t set) { return followed_.depends_on(set, notice.rank); };
  give_up(concerned, cause);
  const auto leave = [&](std::uint32_t set) {
    const auto runs = notice.through.find(set);
    std::uint64_t through = runs == notice.through.end() ? 0 : runs->second;
    // Its members have followed all that their host's leader has ordered.
    const bool leads = followed_.has_set(set) && followed_.is_host_only(set) &&
                       !followed_.in_set(set, notice.rank);
    if (leads) through = std::numeric_limits<std::uint64_t>::max();
    actions_.emplace_back(RankLeft{notice.rank, set, through, cause});
  };
  for (const std::uint32_t set : followed_.set_ids()) {
    if (!concerned(set) || !followed_.in_set(set, rank_)) continue;
    member_.close_set(set);
    leave(set);
  }
  for (const auto& [set, ranks] : ended_) {
    if (std::ranges::binary_search(ranks, notice.rank)) leave(set);
  }
}

void Negotiator::give_up(const std::function<bool(std::uint32_t)>& concerned, const Status& cause) {
  for (Finished& one : member_.give_up(concerned, [&](const Unit&) { return cause; })) {
    actions_.emplace_back(Finish{one.ticket, std::move(one.status)});
  }
}

// What is not ordered yet of the set is given up, on every rank at the same place of the stream.
Status Negotiator::end_set(std::uint32_t process_set) {
  Result<std::vector<Finished>> given_up = member_.end_set(process_set);
  if (!given_up) return given_up.status();
  for (Finished& one : *given_up) {
    actions_.emplace_back(Finish{one.ticket, std::move(one.status)});
  }
  if (followed_.in_set(process_set, rank_)) {
    ended_.emplace_back(process_set, followed_.ranks_of_set(process_set));
  } else {
    member_.forget_runs(process_set);
  }
  if (ended_.size() > kEndedKept) {
    member_.forget_runs(ended_.front().first);
    ended_.pop_front();
  }
  followed_.end_process_set(process_set);
  return Status::ok();
}

}  // namespace kolo::internal
