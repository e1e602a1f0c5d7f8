#include "launcher/meeting_desk.h"

#include <algorithm>

#include "transport/rendezvous/codec.h"

namespace kolo::internal {

MeetingDesk::MeetingDesk(boost::asio::io_context& io, int size, Nanos start_timeout,
                         Deliver deliver)
    : meeting_(size, {start_timeout, "--start-timeout", "kolorun"}),
      deliver_(std::move(deliver)),
      timer_(io) {}

void MeetingDesk::join(std::size_t host, const RelayJoin& join) {
  const std::uint64_t id = next_id_++;
  ids_[{host, join.connection}] = id;
  places_[id] = {host, join.connection};
  waiting_.insert(id);
  auto decoded = decode_join(id, join.join);
  if (decoded) {
    known_.insert(decoded->peer.rank);
    std::erase_if(harms_, [&](const Told& told) { return told.rank == decoded->peer.rank; });
    ranks_[id] = decoded->peer.rank;
    if (!decoded->obstacle.is_ok()) culprit_ = decoded->peer.rank;
    answer(meeting_.join(*std::move(decoded), clock_.now()));
  } else {
    answer({{id, decoded.status(), {}}});
  }
  if (!no_more_.is_ok()) fail_waiting();
  watch_time();
}

void MeetingDesk::left(std::size_t host, const RelayLeft& left) {
  const auto found = ids_.find({host, left.connection});
  if (found == ids_.end()) return;
  deliver(meeting_.left(found->second));
  waiting_.erase(found->second);
  places_.erase(found->second);
  ranks_.erase(found->second);
  ids_.erase(found);
  watch_time();
}

void MeetingDesk::harmed(std::size_t host, const RelayHarmed& harmed) {
  const auto found = ids_.find({host, harmed.connection});
  if (found == ids_.end()) return;
  const auto rank = ranks_.find(found->second);
  if (rank == ranks_.end()) return;
  const auto harm = decode_harm(harmed.harm);
  note_harm(rank->second, harm ? *harm : Harm{}, true);
}

void MeetingDesk::note_harm(int rank, Harm harm, bool told) {
  if (!is_harmed(rank)) harms_.push_back({rank, std::move(harm), told});
}

const MeetingDesk::Told* MeetingDesk::find_harm(int rank) const {
  const auto found = std::ranges::find(harms_, rank, &Told::rank);
  return found == harms_.end() ? nullptr : &*found;
}

std::optional<LostRank> MeetingDesk::first_lost() const {
  if (harms_.empty()) return std::nullopt;
  const auto lost = [](const Told& told) {
    return LostRank{told.harm.lost_rank, told.by_rank ? told.rank : -1, told.harm.why};
  };
  const Told* last = &harms_.front();
  for (std::size_t i = 0; i < harms_.size(); ++i) {
    const Told* next = find_harm(last->harm.lost_rank);
    if (next == nullptr) return lost(*last);
    last = next;
  }
  // Each blames another: whoever spoke first was there last.
  return lost(harms_.front());
}

void MeetingDesk::ended(int rank, const std::string& how) {
  if (!no_more_.is_ok()) return;
  culprit_ = rank;
  no_more_ = peer_lost(how + (known_.contains(rank)
                                  ? "; it cannot meet the others again: let every rank call "
                                    "kolo_init as often as the others"
                                  : " before it joined the job; see what it printed, and let "
                                    "every rank call kolo_init"));
  fail_waiting();
  watch_time();
}

void MeetingDesk::fail_waiting() {
  std::vector<Meeting::Answer> answers;
  for (const std::uint64_t id : waiting_) {
    static_cast<void>(meeting_.left(id));  // whom nobody was told of yet
    answers.push_back({id, no_more_, {}});
  }
  answer(answers);
}

// News of one that has left harms only those that say so themselves: the others have begun.
void MeetingDesk::deliver(const std::vector<Meeting::Answer>& answers) {
  for (const Meeting::Answer& one : answers) {
    const auto place = places_.find(one.connection);
    if (place == places_.end()) continue;
    deliver_(place->second.first, {place->second.second, encode_answer(one)});
  }
}

void MeetingDesk::answer(const std::vector<Meeting::Answer>& answers) {
  for (const Meeting::Answer& one : answers) {
    waiting_.erase(one.connection);
    const auto rank = ranks_.find(one.connection);
    const bool harms =
        one.status.code() == StatusCode::kPeerLost || one.status.code() == StatusCode::kTimedOut;
    if (harms && rank != ranks_.end() && rank->second != culprit_) {
      note_harm(rank->second, {culprit_, one.status.text()}, false);
    }
  }
  deliver(answers);
}

// The time of a round begins with the first who waits.
void MeetingDesk::watch_time() {
  const Nanos due = meeting_.next_expiry();
  if (due == due_) return;
  due_ = due;
  timer_.cancel();
  if (due == kNever) return;
  timer_.expires_after(std::max(due - clock_.now(), Nanos(0)));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    const std::vector<int> missing = meeting_.missing();
    culprit_ = missing.size() == 1 ? missing.front() : -1;
    answer(meeting_.expire("the loopback of every host, relayed to kolorun"));
    watch_time();
  });
}

}  // namespace kolo::internal
