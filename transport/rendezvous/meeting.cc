#include <algorithm>
#include <map>
#include <string>

#include "transport/rendezvous/codec.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {
namespace {

std::string who(const PeerInfo& peer) {
  std::string text = "rank ";
  text += std::to_string(peer.rank);
  text += " (host ";
  text += peer.host;
  text += ", pid ";
  text += std::to_string(peer.pid);
  text += ")";
  return text;
}

Status lost_during_init(const PeerInfo& peer) {
  return peer_lost(who(peer) +
                   " is lost: its connection to the rendezvous ended during kolo_init; see the "
                   "output of that rank for the cause");
}

// Where some rank does not know its host's number, the names tell.
void number_hosts(std::vector<PeerInfo>& peers) {
  const auto unknown = [](const PeerInfo& peer) { return peer.host_index < 0; };
  if (std::none_of(peers.begin(), peers.end(), unknown)) return;
  std::map<std::string, int> numbers;
  for (PeerInfo& peer : peers) {
    peer.host_index =
        numbers.try_emplace(peer.host, static_cast<int>(numbers.size())).first->second;
  }
}

// On hosts where some rank does not know its place, places are in the order of ranks.
void number_local_ranks(std::vector<PeerInfo>& peers) {
  std::map<int, int> next;  // by host
  for (const PeerInfo& peer : peers) {
    if (peer.local_rank < 0) next.try_emplace(peer.host_index, 0);
  }
  for (PeerInfo& peer : peers) {
    const auto host = next.find(peer.host_index);
    if (host != next.end()) peer.local_rank = host->second++;
  }
}

}  // namespace

// What keeps the job from meeting, whoever else comes.
Status Meeting::obstacle_of(const Join& join) const {
  const PeerInfo& peer = join.peer;
  if (join.protocol != kProtocolVersion) {
    return invalid_argument(who(peer) + " speaks kolo protocol " + std::to_string(join.protocol) +
                            ", the others speak " + std::to_string(kProtocolVersion) +
                            "; run every rank and kolorun with the same version of kolo");
  }
  if (!join.obstacle.is_ok()) {
    return peer_lost(who(peer) + " cannot take part: " + join.obstacle.text());
  }
  if (join.size != size_) {
    return invalid_argument(who(peer) + " says the job has " + std::to_string(join.size) +
                            " ranks, the rendezvous was started for " + std::to_string(size_) +
                            "; give every rank the same KOLO_SIZE");
  }
  return Status::ok();
}

// What this one join is refused for, whatever the others do.
Status Meeting::check(const Join& join) const {
  const PeerInfo& peer = join.peer;
  if (peer.rank < 0 || peer.rank >= size_) {
    return invalid_argument(who(peer) + " is out of range: the job has ranks 0 to " +
                            std::to_string(size_ - 1) + "; correct KOLO_RANK");
  }
  for (const Present& present : present_) {
    if (present.peer.rank != peer.rank) continue;
    return invalid_argument("rank already present: " + who(peer) + " joined while " +
                            who(present.peer) +
                            " is in the meeting; give every process its own "
                            "KOLO_RANK");
  }
  return Status::ok();
}

std::vector<Meeting::Answer> Meeting::fail_round(const Status& why) {
  std::vector<Answer> answers;
  for (Present& present : present_) {
    if (std::exchange(present.answered, true)) continue;
    answers.push_back({present.connection, why, {}});
    std::erase(untold_, present.peer.rank);
  }
  return answers;
}

std::vector<Meeting::Answer> Meeting::join(Join join, Nanos now) {
  if (Status obstacle = obstacle_of(join); !obstacle && round_failure_.is_ok()) {
    round_failure_ = std::move(obstacle);
    untold_.clear();
    for (int rank = 0; rank < size_; ++rank) untold_.push_back(rank);
  }
  if (!round_failure_.is_ok()) {
    // The round stays failed until each rank has heard of it, however late it comes.
    const Status why = round_failure_;
    std::vector<Answer> answers = fail_round(why);
    answers.push_back({join.connection, why, {}});
    std::erase(untold_, join.peer.rank);
    if (untold_.empty()) round_failure_ = Status::ok();
    return answers;
  }
  if (Status status = check(join); !status) {
    refused_ = status.text();
    return {{join.connection, std::move(status), {}}};
  }
  const Nanos limit = std::min(join.limit, limit_.time);
  const Nanos deadline = limit > kNever - now ? kNever : now + limit;
  present_.push_back({join.connection, std::move(join.peer), limit, deadline});
  return answers_if_complete();
}

std::vector<Meeting::Answer> Meeting::answers_if_complete() {
  // Who was answered before belongs to the last round: it has to leave and join again first.
  const bool complete =
      present_.size() == static_cast<std::size_t>(size_) &&
      std::none_of(present_.begin(), present_.end(), [](const Present& p) { return p.answered; });
  if (!complete) return {};
  refused_.clear();
  left_by_one_ = false;
  PeerTable table;
  table.generation = ++generation_;
  for (Present& present : present_) {
    present.answered = true;
    table.peers.push_back(present.peer);
  }
  std::sort(table.peers.begin(), table.peers.end(),
            [](const PeerInfo& a, const PeerInfo& b) { return a.rank < b.rank; });
  number_hosts(table.peers);
  number_local_ranks(table.peers);
  std::vector<Answer> answers;
  for (const Present& present : present_) {
    answers.push_back({present.connection, Status::ok(), table});
  }
  return answers;
}

std::vector<Meeting::Answer> Meeting::left(std::uint64_t connection) {
  const auto found = std::ranges::find(present_, connection, &Present::connection);
  if (found == present_.end()) return {};
  const Present gone = *found;
  present_.erase(found);
  if (!gone.answered || std::exchange(left_by_one_, true)) return {};
  const Status why = lost_during_init(gone.peer);
  std::vector<Answer> news;
  for (const Present& present : present_) {
    if (present.answered) news.push_back({present.connection, why, {}});
  }
  return news;
}

std::vector<Meeting::Answer> Meeting::lost(std::uint64_t connection) {
  const auto found = std::ranges::find(present_, connection, &Present::connection);
  if (found == present_.end() || found->answered) return left(connection);
  const Status why = lost_during_init(found->peer);
  left(connection);
  return fail_round(why);
}

std::vector<int> Meeting::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    const bool waiting = std::any_of(present_.begin(), present_.end(), [&](const Present& p) {
      return p.peer.rank == rank && !p.answered;
    });
    if (!waiting) ranks.push_back(rank);
  }
  return ranks;
}

bool Meeting::anyone_waits() const {
  return std::any_of(present_.begin(), present_.end(),
                     [](const Present& p) { return !p.answered; });
}

Nanos Meeting::next_expiry() const {
  Nanos first = kNever;
  for (const Present& present : present_) {
    if (!present.answered) first = std::min(first, present.deadline);
  }
  return first;
}

std::vector<Meeting::Answer> Meeting::expire(const std::string& where, const std::string& more) {
  if (!anyone_waits()) return {};
  const Present* first = nullptr;  // whose time has come
  for (const Present& present : present_) {
    if (present.answered || (first != nullptr && first->deadline <= present.deadline)) continue;
    first = &present;
  }
  const bool is_common = first->limit >= limit_.time;
  const std::string option = is_common ? limit_.option : "KOLO_START_TIMEOUT_MS";
  std::string text = "missing rank";
  const std::vector<int> ranks = missing();
  if (ranks.size() != 1) text += "s";
  const char* separator = " ";
  for (const int rank : ranks) {
    text += separator;
    text += std::to_string(rank);
    separator = ", ";
  }
  text += " of ";
  text += std::to_string(size_);
  text += " when the start timeout ended";
  if (first->limit != kNever) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(first->limit).count();
    text += " (" + std::to_string(ms) + " ms by " + option + " of ";
    text += is_common ? limit_.owner : "rank " + std::to_string(first->peer.rank);
    text += ")";
  }
  text += "; the rendezvous listens on " + where;
  text += ": see that these ranks were started and can reach it, or raise " + option;
  if (!refused_.empty()) text += "; refused meanwhile: " + refused_;
  if (!more.empty()) text += "; " + more;
  return fail_round(timed_out(std::move(text)));
}

}  // namespace kolo::internal
