// Liveness: which linked ranks have been silent for too long, or do not get what is sent to them.
// Pure: told what was heard, what was confirmed, and the time. Sockets tell at once of a rank that
// dies; this finds the frozen and the cut off.
//
// Every rank says something once a beat. So the silence is counted from when the next word was due:
// who stops at any moment is found between the timeout and one beat later, never before. And where
// nothing arrives any more, the first word that does not was sent within a beat; as what did arrive
// may have been about to be confirmed, that counts from a little later.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "base/clock.h"

namespace kolo::internal {

class Liveness {
 public:
  // A system may confirm so late what it has got: Linux 40 ms after, under load twice that.
  static constexpr Nanos kConfirmationDelay = 150ms;

  Liveness(const std::vector<int>& linked, Nanos timeout, Nanos now)
      : timeout_(timeout), beat_(std::min<Nanos>(timeout / 4, 250ms)), next_beat_(now) {
    for (const int rank : linked) watched_[rank].heard = now;
  }

  void heard(int rank, Nanos now) {
    const auto it = watched_.find(rank);
    if (it != watched_.end()) it->second.heard = now;
  }
  // Of all bytes ever sent to it, so many have reached its system: to be said after every beat was
  // sent, and before take_unconfirmed().
  void confirmed(int rank, std::uint64_t sent, std::uint64_t confirmed, Nanos now) {
    const auto it = watched_.find(rank);
    if (it == watched_.end() || confirmed < it->second.awaited) return;
    it->second.awaited = sent;
    it->second.awaited_since = confirmed < sent ? now : kNever;
  }
  void forget(int rank) { watched_.erase(rank); }

  // Whether it is time to say something to everyone linked; then not again for a while.
  bool take_beat(Nanos now) {
    if (now < next_beat_) return false;
    next_beat_ = now + beat_;
    return true;
  }
  // Ranks that are silent for too long; each is named once.
  std::vector<int> take_silent(Nanos now) {
    return take([&](const Watched& one) { return now - one.heard >= timeout_ + beat_; });
  }
  // Ranks that have not got for too long what was sent to them; each is named once.
  std::vector<int> take_unconfirmed(Nanos now) {
    return take([&](const Watched& one) {
      return one.awaited_since != kNever && now >= one.unconfirmed_at(timeout_);
    });
  }

  [[nodiscard]] std::vector<int> watched() const {
    std::vector<int> ranks;
    for (const auto& [rank, one] : watched_) ranks.push_back(rank);
    return ranks;
  }
  // Whether something that was sent is to be asked after now.
  [[nodiscard]] bool is_confirmation_due(Nanos now) const { return now >= next_confirmation(); }
  [[nodiscard]] Nanos next_deadline() const {
    if (watched_.empty()) return kNever;
    Nanos next = std::min(next_beat_, next_confirmation());
    for (const auto& [rank, one] : watched_) next = std::min(next, one.heard + timeout_ + beat_);
    return next;
  }
  [[nodiscard]] Nanos timeout() const { return timeout_; }

 private:
  struct Watched {
    Nanos heard{0};
    std::uint64_t awaited = 0;  // so many bytes are to be confirmed,
    Nanos awaited_since = kNever;

    [[nodiscard]] Nanos unconfirmed_at(Nanos timeout) const {
      return awaited_since + kConfirmationDelay + timeout;
    }
  };

  template <typename Test>
  std::vector<int> take(const Test& test) {
    std::vector<int> ranks;
    for (const auto& [rank, one] : watched_) {
      if (test(one)) ranks.push_back(rank);
    }
    for (const int rank : ranks) forget(rank);
    return ranks;
  }
  [[nodiscard]] Nanos next_confirmation() const {
    Nanos next = kNever;
    for (const auto& [rank, one] : watched_) {
      if (one.awaited_since != kNever) next = std::min(next, one.unconfirmed_at(timeout_));
    }
    return next;
  }

  Nanos timeout_;
  Nanos beat_;
  Nanos next_beat_;
  std::map<int, Watched> watched_;
};

}  // namespace kolo::internal
