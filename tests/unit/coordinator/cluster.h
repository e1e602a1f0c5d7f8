// Cluster: the negotiators of one job in one thread, their frames delivered in order at once.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/negotiator.h"

namespace kolo::internal {

class Cluster {
 public:
  struct Rank {
    std::unique_ptr<Negotiator> negotiator;
    std::vector<Plan> plans;
    std::map<Ticket, Status> ended;  // of submissions that did not run
    std::vector<std::string> warnings;
    std::vector<JoinEnded> joins;
    std::vector<SetClosed> left;
    std::vector<Status> broken;
  };

  explicit Cluster(Topology topology, SequencerOptions options = {}, std::uint64_t generation = 1) {
    for (int rank = 0; rank < topology.size(); ++rank) {
      ranks_.push_back({});
      ranks_.back().negotiator = std::make_unique<Negotiator>(topology, rank, generation, options);
    }
  }

  Rank& operator[](int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Negotiator& at(int rank) { return *(*this)[rank].negotiator; }
  // Not inline: g++ 12 takes the string of an empty optional for uninitialised there.
  [[gnu::noinline]] Status submit(int rank, Ticket ticket, UnitPtr unit, Nanos deadline = kNever) {
    return at(rank).submit(ticket, std::move(unit), deadline);
  }
  [[gnu::noinline]] Status submit(int rank, Ticket ticket, UnitPtr unit, Nanos deadline,
                                  std::string payload) {
    return at(rank).submit(ticket, std::move(unit), deadline, std::move(payload));
  }

  // Until nothing moves. Frames of held links stay on the way.
  void settle() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) moved |= drain(rank);
      for (auto& [link, frames] : links_) {
        if (held_.contains(link)) continue;
        while (!frames.empty()) {
          moved = true;
          const std::string bytes = std::move(frames.front());
          frames.pop_front();
          const Status status = at(link.second).receive(link.first, bytes, now);
          if (!status) at(link.second).fail(status);
          drain(link.second);
        }
      }
    }
  }
  void hold(int from, int to) { held_.insert({from, to}); }
  void release() { held_.clear(); }
  std::deque<std::string>& link(int from, int to) { return links_[{from, to}]; }
  std::size_t frames_sent(int from, int to) { return sent_[{from, to}]; }

  void tick_all() {
    for (Rank& rank : ranks_) rank.negotiator->tick(now);
    settle();
  }

  Nanos now{0};

 private:
  bool drain(int rank) {
    const std::vector<Action> actions = at(rank).drain(now);
    for (const Action& action : actions) take(rank, action);
    return !actions.empty();
  }
  void take(int rank, const Action& action) {
    Rank& to = (*this)[rank];
    if (const auto* frame = std::get_if<SendFrame>(&action)) {
      links_[{rank, frame->rank}].push_back(frame->bytes);
      ++sent_[{rank, frame->rank}];
    }
    if (const auto* execute = std::get_if<Execute>(&action)) to.plans.push_back(execute->plan);
    if (const auto* finish = std::get_if<Finish>(&action)) {
      to.ended.emplace(finish->ticket, finish->status);
    }
    if (const auto* warn = std::get_if<Warn>(&action)) to.warnings.push_back(warn->text);
    if (const auto* ended = std::get_if<JoinEnded>(&action)) to.joins.push_back(*ended);
    if (const auto* left = std::get_if<SetClosed>(&action)) to.left.push_back(*left);
    if (const auto* broken = std::get_if<Broken>(&action)) to.broken.push_back(broken->status);
  }

  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, std::deque<std::string>> links_;
  std::map<std::pair<int, int>, std::size_t> sent_;
  std::set<std::pair<int, int>> held_;
};

}  // namespace kolo::internal
