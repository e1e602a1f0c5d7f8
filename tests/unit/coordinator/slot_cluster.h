// SlotCluster: the negotiators of one host with a slot board, in one thread. Frames are delivered
// in order at once, and before what the slots show; a rank that is held looks at nothing: neither
// frames, nor slots, nor the log.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/negotiator.h"
#include "tests/sim/slots.h"

namespace kolo::internal {

class SlotCluster {
 public:
  struct Rank {
    std::unique_ptr<SlotTable> table;
    std::unique_ptr<Negotiator> negotiator;
    std::vector<std::string> order;  // of operations in the host's sequence, "a+b" where they fuse
    std::map<Ticket, Status> ended;
    std::map<Ticket, std::vector<int>> absent;            // by submissions that ran
    std::map<Ticket, std::vector<std::string>> gathered;  // by submissions complete in their slots
    std::vector<std::string> warnings;
    std::vector<SetClosed> left;
    std::vector<Status> broken;
    std::string cut;  // of the log, not at its end yet
  };

  explicit SlotCluster(const Topology& topology, const SequencerOptions& options = {},
                       std::uint32_t slots = 16)
      : topology_(topology), boards_(slots, topology.size()) {
    for (int rank = 0; rank < topology.size(); ++rank) {
      Rank& made = ranks_.emplace_back();
      made.table = std::make_unique<SlotTable>(
          topology_, rank, boards_.of(rank),
          [&made](Ticket ticket, const UnitPtr&, const std::vector<std::string>& payloads) {
            made.gathered[ticket] = payloads;
            made.ended.emplace(ticket, Status::ok());
          },
          [](int) {});
      made.negotiator = std::make_unique<Negotiator>(
          topology_, rank, 1, options, HostSlots{&boards_.of(rank), made.table.get()});
    }
  }

  Rank& operator[](int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Negotiator& at(int rank) { return *(*this)[rank].negotiator; }
  // A set that the program has made: what core would learn of it.
  void add_process_set(std::uint32_t id, std::vector<int> ranks) {
    topology_.add_process_set(id, std::move(ranks));
  }
  SlotBoard& board(int rank) { return boards_.of(rank); }
  [[nodiscard]] std::size_t frames() const { return frames_; }
  void hold(int rank) { held_.insert(rank); }
  void release() { held_.clear(); }
  void release(int rank) { held_.erase(rank); }

  // True if it went through its slot.
  bool submit(int rank, Ticket ticket, const UnitPtr& unit, Nanos deadline = kNever,
              const std::string& payload = {}) {
    if ((*this)[rank].table->publish(ticket, unit, deadline, payload)) return true;
    EXPECT_TRUE(at(rank).submit(ticket, unit, deadline, std::nullopt).is_ok());
    return false;
  }
  void submit_all(Ticket ticket, const UnitPtr& unit) {
    for (int rank = 0; rank < topology_.size(); ++rank) submit(rank, ticket, unit);
    settle();
  }
  void refuse(int rank, const UnitPtr& unit) {
    (*this)[rank].table->refuse(unit->key);
    at(rank).refuse(unit);
  }

  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [link, frames] : links_) {
        if (held_.contains(link.second)) continue;
        while (!frames.empty()) {
          moved = true;
          const std::string bytes = std::move(frames.front());
          frames.pop_front();
          EXPECT_TRUE(at(link.second).receive(link.first, bytes, now).is_ok());
        }
      }
      for (int rank = 0; rank < topology_.size(); ++rank) {
        if (!held_.contains(rank)) moved = look(rank) || moved;
      }
    }
  }
  // One rank's clock; what it has to say goes on its way.
  void tick(int rank) {
    tell_time((*this)[rank]);
    drain(rank);
  }
  void tick_all() {
    for (Rank& rank : ranks_) {
      tell_time(rank);
    }
    settle();
  }

  Nanos now{0};

 private:
  void tell_time(Rank& rank) const {
    for (const auto& [key, mark] : rank.table->take_expired(now)) {
      rank.negotiator->expire_slot(key, mark);
    }
    rank.negotiator->tick(now);
  }
  // As Engine::tick: the negotiator's actions, then the slots, then the log.
  bool look(int rank) {
    bool moved = drain(rank);
    while ((*this)[rank].table->complete_one()) moved = true;
    moved = at(rank).order_slots(now) || moved;
    for (LogEntry entry;;) {
      const Negotiator::Step step = at(rank).follow_log(entry);
      if (step == Negotiator::Step::kNone) return moved;
      moved = true;
      if (step == Negotiator::Step::kItem) {
        drain(rank);
      } else {
        take_ordered((*this)[rank], entry);
      }
    }
  }
  void take_ordered(Rank& rank, const LogEntry& entry) {
    const SlotSubmission mine = rank.table->ordered(entry);
    if (mine.ticket != 0) {
      if (rank.cut.empty()) rank.negotiator->count_run(mine.unit->key.process_set);
      rank.cut += (rank.cut.empty() ? "" : "+") + mine.unit->key.name;
      rank.ended.emplace(mine.ticket, Status::ok());
    }
    if (!entry.ends_cut) return;
    if (!rank.cut.empty()) rank.order.push_back(std::exchange(rank.cut, {}));
  }
  bool drain(int rank) {
    const std::vector<Action> actions = at(rank).drain(now);
    for (const Action& action : actions) take(rank, action);
    return !actions.empty();
  }
  void take(int rank, const Action& action) {
    Rank& to = (*this)[rank];
    if (const auto* frame = std::get_if<SendFrame>(&action)) {
      links_[{rank, frame->rank}].push_back(frame->bytes);
      ++frames_;
    }
    if (const auto* execute = std::get_if<Execute>(&action)) {
      for (const PlannedUnit& planned : execute->plan.units) {
        if (planned.run == 0) continue;
        to.order.push_back(planned.unit->key.name);
        to.ended.emplace(planned.ticket, Status::ok());
        to.absent[planned.ticket] = planned.absent;
      }
    }
    if (const auto* finish = std::get_if<Finish>(&action)) {
      to.ended.emplace(finish->ticket, finish->status);
    }
    if (const auto* warn = std::get_if<Warn>(&action)) to.warnings.push_back(warn->text);
    if (const auto* left = std::get_if<SetClosed>(&action)) {
      to.left.push_back(*left);
      end_published(to, left->process_set, left->status);
    }
    if (const auto* broken = std::get_if<Broken>(&action)) {
      to.broken.push_back(broken->status);
      end_published(to, std::nullopt, broken->status);
    }
  }
  static void end_published(Rank& rank, std::optional<std::uint32_t> set, const Status& status) {
    while (rank.table->complete_one()) {
    }
    for (const Ticket ticket : rank.table->give_up(set)) rank.ended.emplace(ticket, status);
  }

  Topology topology_;
  SlotBoards boards_;
  std::deque<Rank> ranks_;
  std::map<std::pair<int, int>, std::deque<std::string>> links_;
  std::set<int> held_;
  std::size_t frames_ = 0;
};

}  // namespace kolo::internal
