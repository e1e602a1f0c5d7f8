// Network: reliable, ordered streams between the simulated ranks, and the queue of everything that
// is to happen. Virtual time only; one thread.
//
// Messages of one link arrive in order, after random delays and stalls. A node is a rank through
// its generations: what was sent in an older one may still be under way.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/sim/random.h"

namespace kolo::internal {

struct Event {
  enum class Kind {
    kDeliver,
    kProgram,
    kTick,
    kDrain,
    kLook,  // at what the ranks of its host share
    kReread,
    kFault,
    kThaw,
    kReform,
    kStale
  };
  Nanos at{0};
  std::uint64_t order = 0;  // of events at the same time
  Kind kind = Kind::kProgram;
  int node = 0;  // whom it concerns; of a delivery the receiver
  int from = 0;  // of a delivery or a re-reading: the other end
  std::uint64_t generation = 0;
};

struct Message {
  std::uint64_t generation = 0;
  std::string bytes;
  bool end = false;  // the sender is gone; nothing follows
};

class Network {
 public:
  explicit Network(Rng& rng) : rng_(rng) {}

  [[nodiscard]] Nanos now() const { return now_; }
  void at(Nanos time, Event::Kind kind, int node, std::uint64_t generation, int from = 0);
  void after(Nanos delay, Event::Kind kind, int node, std::uint64_t generation, int from = 0) {
    at(now_ + delay, kind, node, generation, from);
  }
  Nanos some_delay(Nanos most) {
    return Nanos(rng_.below(static_cast<std::uint64_t>(most.count()) + 1));
  }

  void send(int from, int to, Message message);
  // The sender's machine is gone: what it had just sent may be lost, then the stream ends.
  void cut(int from, int to, std::uint64_t generation);
  // The message of a delivery event.
  Message take(int from, int to);

  [[nodiscard]] bool is_empty() const { return events_.empty(); }
  Event next();

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  struct Link {
    std::deque<Message> messages;
    Nanos last{0};  // when the last one arrives
    bool is_cut = false;
  };

  Rng& rng_;
  Nanos now_{0};
  std::uint64_t order_ = 0;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::map<std::pair<int, int>, Link> links_;
};

}  // namespace kolo::internal
