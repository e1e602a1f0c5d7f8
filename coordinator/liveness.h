// Liveness: which linked ranks have been silent for too long. Pure: told what was heard and the
// time. Sockets tell at once of a rank that dies; this finds the frozen and the cut off.
//
// Every rank says something once a beat. So the silence is counted from when the next word was due:
// who stops at any moment is found between the timeout and one beat later, never before.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "base/clock.h"

namespace kolo::internal {

class Liveness {
 public:
  Liveness(const std::vector<int>& linked, Nanos timeout, Nanos now)
      : timeout_(timeout), beat_(std::min<Nanos>(timeout / 4, 250ms)), next_beat_(now) {
    for (const int rank : linked) heard_[rank] = now;
  }

  void heard(int rank, Nanos now) {
    const auto it = heard_.find(rank);
    if (it != heard_.end()) it->second = now;
  }
  void forget(int rank) { heard_.erase(rank); }

  // Whether it is time to say something to everyone linked; then not again for a while.
  bool take_beat(Nanos now) {
    if (now < next_beat_) return false;
    next_beat_ = now + beat_;
    return true;
  }
  // Ranks that are silent for too long; each is named once.
  std::vector<int> take_silent(Nanos now) {
    std::vector<int> silent;
    for (const auto& [rank, when] : heard_) {
      if (now - when >= timeout_ + beat_) silent.push_back(rank);
    }
    for (const int rank : silent) forget(rank);
    return silent;
  }

  [[nodiscard]] std::vector<int> watched() const {
    std::vector<int> ranks;
    for (const auto& [rank, when] : heard_) ranks.push_back(rank);
    return ranks;
  }
  [[nodiscard]] Nanos next_deadline() const {
    if (heard_.empty()) return kNever;
    Nanos next = next_beat_;
    for (const auto& [rank, when] : heard_) next = std::min(next, when + timeout_ + beat_);
    return next;
  }
  [[nodiscard]] Nanos timeout() const { return timeout_; }

 private:
  Nanos timeout_;
  Nanos beat_;
  Nanos next_beat_;
  std::map<int, Nanos> heard_;
};

}  // namespace kolo::internal
