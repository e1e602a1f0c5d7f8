// The engine's part in who is lost: what it sees, what it believes, and what ends with it.
#include <algorithm>
#include <utility>

#include "core/engine.h"

namespace kolo::internal {
namespace {

// How long news of the cause may be on its way after its consequence has been seen.
constexpr Nanos kForNews = 200ms;
// What a rank's context has come to harm by: a lost rank of the job, or one of these.
constexpr int kWhole = -1;  // by nothing that it knows of
constexpr int kEnded = -2;  // it was ended
constexpr const char* kUnconfirmed =
    "it confirms nothing that is sent to it: cut off from the network, at least in one direction";
constexpr const char* kDied =
    "its process ended without taking leave (kolo_shutdown); see the output of that rank for the "
    "cause";

}  // namespace

// -1: it is on another one.
int Engine::place_on_host(int rank) const {
  const auto place = std::ranges::find(board_ranks_, rank);
  return place == board_ranks_.end() ? -1 : static_cast<int>(place - board_ranks_.begin());
}

bool Engine::has_died(int rank) const {
  const int place = place_on_host(rank);
  return parts_.witness != nullptr && place >= 0 && parts_.witness->is_lost(place);
}

// A process that has died is known here before its sockets say so. What it has said before is
// heard first.
bool Engine::watch_for_deaths(Nanos now) {
  if (parts_.witness == nullptr || parts_.witness->lost() < 0) return false;
  bool has_listened = false;
  bool moved = false;
  for (const int rank : board_ranks_) {
    if (!has_died(rank) || negotiator_.is_lost(rank) || has_done_its_part(rank)) continue;
    if (!std::exchange(has_listened, true)) moved = take_events(now);
    find_ended(rank, kDied, now);
    moved = moved || negotiator_.is_lost(rank);
  }
  return moved;
}

void Engine::watch_liveness(Nanos now) {
  const bool beats = liveness_.take_beat(now);
  if (beats) {
    negotiator_.beat();
    act(now);
  }
  if (beats || liveness_.is_confirmation_due(now)) {
    for (const int rank : liveness_.watched()) {
      const ControlDelivery delivery = parts_.link.delivery(rank);
      liveness_.confirmed(rank, delivery.queued, delivery.confirmed, now);
    }
  }
  // The words are made only where there is somebody to be judged.
  for (const int rank : liveness_.take_silent(now)) {
    if (has_done_its_part(rank)) continue;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(liveness_.timeout());
    lose(rank, "silent for " + std::to_string(ms.count()) +
                   " ms: frozen, or cut off from the network. Raise KOLO_PEER_TIMEOUT_MS if it "
                   "was only slow");
  }
  for (const int rank : liveness_.take_unconfirmed(now)) {
    if (!has_done_its_part(rank)) lose(rank, kUnconfirmed);
  }
}

// It has taken leave, and nothing here waits for it.
bool Engine::has_done_its_part(int rank) const {
  return negotiator_.has_left(rank) && (parts_.executor.idle() || is_done_with(rank));
}

// Its program may have ended it because of what had happened to others, or because of an error that
// all ranks get: that comes first.
void Engine::find_ended(int rank, const std::string& how, Nanos now) {
  act(now);
  if (parts_.board != nullptr) run_slots(now);
  if (negotiator_.is_lost(rank) || !negotiator_.broken().is_ok()) return;
  if (negotiator_.has_left(rank)) {
    if (!has_done_its_part(rank)) suspect(rank, how, now);
    return;
  }
  const int harm = harm_of(rank);
  if (harm == kWhole || (harm >= 0 && negotiator_.is_lost(harm))) {
    return lose(rank, how);
  }
  if (harm < 0 || !has_died(harm)) return suspect(rank, how, now);
  lose(harm, kDied);
  lose(rank, how);
}

// kWhole too of who is on another host, since nothing shows it.
int Engine::harm_of(int rank) const {
  const int place = place_on_host(rank);
  if (parts_.witness == nullptr || place < 0) return kWhole;
  return static_cast<int>(parts_.witness->word_left_by(place)) + kWhole;
}

void Engine::suspect(int rank, const std::string& how, Nanos now) {
  const bool known = std::ranges::any_of(
      suspicions_, [rank](const Suspicion& suspicion) { return suspicion.rank == rank; });
  if (!known) suspicions_.push_back({rank, how, now + kForNews});
}

// Of those suspected, and of peers whose channels have broken, although nothing is said of them.
void Engine::judge(Nanos now) {
  for (const Suspicion& suspicion : suspicions_) {
    if (suspicion.until > now || has_done_its_part(suspicion.rank)) continue;
    lose(suspicion.rank, suspicion.how);
  }
  std::erase_if(suspicions_, [now](const Suspicion& one) { return one.until <= now; });
  judge_stuck(now);
}

// Both ends of a broken connection see it, and would give up each other: the lower rank speaks
// first.
void Engine::judge_stuck(Nanos now) {
  const auto stuck = parts_.executor.longest_stuck();
  if (!stuck || now - stuck->since < kForNews) return;
  if (stuck->status.code() == StatusCode::kAborted) {  // the peer left in good order
    return parts_.executor.give_up_stuck(stuck->stream);
  }
  const int peer = parts_.roads.broken_peer(stuck->stream, stuck->status);
  if (peer < 0) return negotiator_.fail(stuck->status);
  if (peer < rank_ && now - stuck->since < 2 * kForNews) return;
  lose(peer, stuck->status.text());
}

Nanos Engine::next_verdict() const {
  Nanos next = kNever;
  for (const Suspicion& suspicion : suspicions_) next = std::min(next, suspicion.until);
  const auto stuck = parts_.executor.longest_stuck();
  return stuck ? std::min(next, stuck->since + kForNews) : next;
}

void Engine::lose(int rank, const std::string& how) {
  liveness_.forget(rank);
  negotiator_.peer_lost(
      rank, "on " + host_names_.at(static_cast<std::size_t>(rank)) + " is lost: " + how);
}

void Engine::close_set(const SetClosed& closed) {
  leaving_ = true;
  if (!parts_.queue.is_closed()) {  // what closed it came first, and is the cause
    parts_.sets.leave(closed.process_set, closed.status);
  }
  end_join(closed.process_set, closed.status, -1);
  end_published(closed.process_set, closed.status);
  parts_.executor.end_beyond(closed.process_set, closed.through, closed.status);
  if (closed.status.code() == StatusCode::kPeerLost) {
    parts_.roads.drop(closed.process_set);
  } else {
    left_sets_.push_back(closed.process_set);
    left_ranks_.insert(closed.rank);
  }
}

// Not before the others have what was refused here: that is the cause for which programs leave.
bool Engine::take_leave(Nanos now) {
  if (now < leave_by_ && negotiator_.has_refused()) return false;
  leave_by_ = kNever;
  said_goodbye_ = true;
  negotiator_.goodbye();
  return true;
}

// Of a set that a rank has left, what goes beyond it may have begun on others: once its last
// operation here has ended, nothing more of it is heard, or it would hold up what comes behind.
void Engine::drop_left_sets() {
  std::erase_if(left_sets_, [this](std::uint32_t set) {
    if (parts_.executor.serves(set)) return false;
    parts_.roads.drop(set);
    return true;
  });
}

// For the launcher and the other ranks of this host, before any caller can learn of it, and end:
// then the others can tell the consequence from the cause.
void Engine::show_harm() {
  const Membership::Loss* loss = negotiator_.first_loss();
  if (harm_shown_ || (loss == nullptr && negotiator_.broken().is_ok())) return;
  harm_shown_ = true;
  if (!broken_here_ && parts_.on_harm) {
    if (loss == nullptr)
      parts_.on_harm(-1, negotiator_.broken().text());
    else
      parts_.on_harm(loss->rank, loss->cause.text());
  }
  if (parts_.witness != nullptr) {
    const int harm = loss == nullptr ? kEnded : loss->rank;
    parts_.witness->leave_word(static_cast<std::uint64_t>(harm - kWhole));
  }
}

}  // namespace kolo::internal
