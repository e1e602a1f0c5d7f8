#include "tests/sim/network.h"

#include <algorithm>

namespace kolo::internal {
namespace {

constexpr Nanos kUsualDelay = 40us;
constexpr Nanos kStall = 2ms;
constexpr int kStallPercent = 1;

}  // namespace

void Network::at(Nanos time, Event::Kind kind, int node, std::uint64_t generation, int from) {
  events_.push({std::max(time, now_), order_++, kind, node, from, generation});
}

void Network::send(int from, int to, Message message) {
  Link& link = links_[{from, to}];
  if (link.is_cut) return;
  const Nanos delay = some_delay(rng_.chance(kStallPercent) ? kStall : kUsualDelay);
  link.last = std::max(link.last, now_ + delay);
  at(link.last, Event::Kind::kDeliver, to, message.generation, from);
  link.messages.push_back(std::move(message));
}

void Network::cut(int from, int to, std::uint64_t generation) {
  Link& link = links_[{from, to}];
  if (!link.messages.empty() && rng_.chance(30)) {
    // Their deliveries come to nothing.
    const std::size_t kept = rng_.below(link.messages.size());
    for (std::size_t i = kept; i < link.messages.size(); ++i) link.messages[i].bytes.clear();
  }
  Message end;
  end.generation = generation;
  end.end = true;
  send(from, to, std::move(end));
  link.is_cut = true;
}

Message Network::take(int from, int to) {
  auto& messages = links_[{from, to}].messages;
  Message message = std::move(messages.front());
  messages.pop_front();
  return message;
}

Event Network::next() {
  const Event event = events_.top();
  events_.pop();
  now_ = event.at;
  return event;
}

}  // namespace kolo::internal
