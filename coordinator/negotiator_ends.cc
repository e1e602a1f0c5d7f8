// The negotiator's part where a rank leaves or is lost, or a process set ends: what is given up.
#include "coordinator/negotiator.h"

#include <algorithm>
#include <limits>

namespace kolo::internal {
namespace {

constexpr std::size_t kEndedKept = 1024;

}  // namespace

void Negotiator::abort(const std::string& reason) {
  hear({Notice::Kind::kAbort, rank_, reason, {}}, rank_);
}

void Negotiator::goodbye() { hear({Notice::Kind::kGoodbye, rank_, {}, member_.runs()}, rank_); }

void Negotiator::peer_lost(int rank, const std::string& how) {
  const std::string text = "rank " + std::to_string(rank) + " " + how;
  hear({Notice::Kind::kLost, rank, text, {}}, rank_);
}

void Negotiator::fail(const Status& cause) {
  hear({Notice::Kind::kAbort, rank_, cause.text(), {}}, rank_);
}

void Negotiator::hear(const Notice& notice, int from) {
  if (notice.kind == Notice::Kind::kLost && notice.rank != rank_) return hear_loss(notice, from);
  if (notice.kind == Notice::Kind::kGoodbye) {
    if (membership_.is_lost(notice.rank) || !membership_.leave(notice.rank)) return;
    spread(notice, from);
    if (board_ != nullptr && notice.rank != rank_) {
      leaving_.push_back({notice, board_->log_end(), items_held_});
    } else {
      rank_leaves(notice);
    }
    return;
  }
  const Status cause =
      notice.kind == Notice::Kind::kLost
          ? kolo::internal::peer_lost(
                "the other ranks have given this one up, and it takes part in "
                "nothing any more: " +
                notice.text)
          : aborted("rank " + std::to_string(notice.rank) + " ended the context: " + notice.text);
  if (!membership_.break_with(cause)) return;
  spread(notice, from);
  give_up([](std::uint32_t) { return true; }, cause);
  actions_.emplace_back(Broken{cause});
}

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
    close(notice.rank, set, through, cause);
  };
  for (const std::uint32_t set : followed_.set_ids()) {
    if (!concerned(set) || !followed_.in_set(set, rank_)) continue;
    followed_.close_set(set);
    leave(set);
  }
  for (const auto& [set, ranks] : ended_) {
    if (std::ranges::binary_search(ranks, notice.rank)) leave(set);
  }
  if (notice.rank != rank_) ignore_on_board(notice.rank);
}

// Its leader does not wait any more until that rank has followed the log.
void Negotiator::ignore_on_board(int rank) {
  if (!slot_leader_) return;
  const auto place = std::ranges::find(host_ranks_, rank);
  if (place != host_ranks_.end()) board_->ignore(static_cast<int>(place - host_ranks_.begin()));
}

void Negotiator::close(int rank, std::uint32_t process_set, std::uint64_t through,
                       const Status& cause) {
  why_closed_.try_emplace(process_set, cause);
  actions_.emplace_back(SetClosed{rank, process_set, through, cause});
}

// Whatever the lost rank had still promised: nothing waits for it.
void Negotiator::hear_loss(const Notice& notice, int from) {
  if (!membership_.broken().is_ok()) return;
  const Status cause = kolo::internal::peer_lost(notice.text);
  Notice news = notice;
  std::erase_if(news.through, [&](const auto& set) { return spoilt_.contains(set.first); });
  for (const auto& [set, none] : news.through) spoilt_.insert(set);
  const bool rank_is_news = membership_.lose(notice.rank, cause);
  if (!rank_is_news && news.through.empty()) return;
  spread(news, from);
  ignore_on_board(notice.rank);
  close_sets(news, rank_is_news, cause);
}

// What is complete stays so; everything else of the sets that depend on the rank ends.
void Negotiator::close_sets(const Notice& notice, bool rank_is_news, const Status& cause) {
  for (Topology* topology : {&topology_, &followed_}) {
    topology->lose(notice.rank);
    for (const auto& [set, none] : notice.through) topology->close_set(set);
  }
  for (const std::uint32_t set : topology_.set_ids()) {
    if (!topology_.is_closed(set)) continue;
    if (leader_role_) leader_role_->forget_set(set);
    if (host_sequencer_) host_sequencer_->forget_set(set);
    if (root_sequencer_) root_sequencer_->forget_set(set);
  }
  std::vector<std::uint32_t> ending;
  const auto is_closed = [&](std::uint32_t set) { return followed_.is_closed(set); };
  for (Finished& one : member_.give_up(is_closed, [&](const Unit& unit) {
         ending.push_back(ended_set(unit));
         return cause;
       })) {
    actions_.emplace_back(Finish{one.ticket, std::move(one.status)});
  }
  const auto concerned = [&](std::uint32_t set, const std::vector<int>& ranks) {
    return (rank_is_news && followed_.depends_on(ranks, notice.rank)) ||
           notice.through.contains(set);
  };
  for (const std::uint32_t set : followed_.set_ids()) {
    if (!followed_.in_set(set, rank_) || !concerned(set, followed_.ranks_of_set(set))) continue;
    close(notice.rank, set, 0, cause);
  }
  for (const auto& [set, ranks] : ended_) {
    if (concerned(set, ranks)) close(notice.rank, set, 0, cause);
  }
  spoil(ending);
}

// Sets that are closed as they are made: what they depend on is known to be lost.
void Negotiator::close_made(const std::vector<std::uint32_t>& sets) {
  for (const std::uint32_t set : sets) {
    if (set == 0 || !followed_.has_set(set) || !followed_.in_set(set, rank_)) continue;
    if (!followed_.is_closed(set)) continue;
    const auto cause = std::ranges::find_if(membership_.lost(), [&](const Membership::Loss& loss) {
      return followed_.depends_on(set, loss.rank);
    });
    const auto& loss = cause == membership_.lost().end() ? membership_.lost().front() : *cause;
    close(loss.rank, set, 0, loss.cause);
  }
}

// Live sets that this rank can do nothing more with, since the call that was to make or end them
// has ended with a lost rank: their other ranks must not wait for it.
void Negotiator::spoil(const std::vector<std::uint32_t>& sets) {
  const Membership::Loss& loss = membership_.lost().front();
  Notice notice{Notice::Kind::kLost, loss.rank, loss.cause.text(), {}};
  for (const std::uint32_t set : sets) {
    if (set == 0 || !followed_.has_set(set) || !followed_.in_set(set, rank_)) continue;
    if (!followed_.is_closed(set)) notice.through.emplace(set, 0);
  }
  if (!notice.through.empty()) hear_loss(notice, rank_);
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
