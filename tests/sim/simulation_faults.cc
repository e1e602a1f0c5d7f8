// What befalls a simulated job: ranks that die, freeze, abort or leave, and how the survivors go
// on.
#include <algorithm>

#include "tests/sim/simulation.h"
#include "tests/sim/violation.h"

namespace kolo::internal {
namespace {

constexpr Nanos kLearnLimit = 1s;  // from a fault until every survivor knows
constexpr int kStaleReplays = 30;

}  // namespace

void Simulation::strike(int index) {
  Node& victim = nodes_[static_cast<std::size_t>(index)];
  if (victim.dead) return;
  if (!is_survivor(victim)) return end_links_of(victim);  // a frozen rank is noticed
  const bool too_late = std::any_of(nodes_.begin(), nodes_.end(), [this](const Node& node) {
    return node.step + 3 >=
           era_of(node).program.scripts[static_cast<std::size_t>(node.rank)].size();
  });
  if (struck_) {  // another one
    if (!too_late) lose(victim, Fault::kKill);
    return;
  }
  if (too_late) {
    fault_ = Fault::kNone;
    return;
  }
  // Who misses a new process set, because some rank leaves, could not go on with the program.
  const Program& program = era_of(victim).program;
  if (fault_ == Fault::kLeave && program.all_sets.newest_set() > program.topology.newest_set()) {
    fault_ = Fault::kAbort;
  }
  unfinished_ = unfinished_sets();
  struck_ = true;
  struck_at_ = network_.now();
  switch (fault_) {
    case Fault::kNone: break;
    case Fault::kKill:
    case Fault::kFreeze: lose(victim, fault_); break;
    case Fault::kAbort:
      take_commands(victim);
      victim.negotiator->abort("a test says so");
      settle(victim);
      break;
    case Fault::kLeave:
      take_commands(victim);
      victim.negotiator->goodbye();
      victim.step = era_of(victim).program.scripts[static_cast<std::size_t>(victim.rank)].size();
      settle(victim);
      break;
  }
}

void Simulation::lose(Node& victim, Fault how) {
  note([&] {
    return "rank " + std::to_string(victim.rank) + (how == Fault::kKill ? " dies" : " freezes");
  });
  lost_.insert(index_of(victim));
  era_of(victim).executor->stop(victim.rank);
  if (how == Fault::kKill) {
    victim.dead = true;
    return end_links_of(victim);
  }
  victim.frozen = true;
  network_.after(network_.some_delay(3ms), Event::Kind::kFault, index_of(victim), generation_);
  network_.after(network_.some_delay(10ms), Event::Kind::kThaw, index_of(victim), generation_);
}

// Sets that the program has not made yet on all their ranks, or is going to end.
std::set<std::uint32_t> Simulation::unfinished_sets() const {
  const Program& program = eras_.back()->program;
  std::set<std::uint32_t> unfinished;
  for (const std::uint32_t set : program.all_sets.set_ids()) {
    if (set <= program.topology.newest_set()) continue;
    for (const int rank : program.all_sets.ranks_of_set(set)) {
      const Node& node = nodes_[static_cast<std::size_t>(rank)];
      if (!node.made.contains(set)) unfinished.insert(set);
    }
  }
  for (const Op& op : program.ops) {
    const auto unit =
        std::ranges::find_if(op.unit_of, [](const UnitPtr& u) { return u != nullptr; });
    if (unit != op.unit_of.end() && ended_set(**unit) != 0) unfinished.insert(ended_set(**unit));
  }
  return unfinished;
}

// The ranks that hold a link to the victim see it end.
void Simulation::end_links_of(const Node& victim) {
  for (const int rank : linked_ranks(victim)) {
    const int other = era_of(victim).node_of[static_cast<std::size_t>(rank)];
    if (victim.dead) {
      network_.cut(index_of(victim), other, victim.generation);
    } else {  // it may wake up and send more, which then comes too late
      network_.send(index_of(victim), other, {victim.generation, {}, true});
    }
  }
}

// A frozen rank goes on where it was. Who has given it up meanwhile has closed its link.
void Simulation::thaw(Node& node) {
  node.frozen = false;
  note([&] { return "rank " + std::to_string(node.rank) + " thaws"; });
  for (const Event& event : std::exchange(node.inbox, {})) handle(event);
  era_of(node).executor->resume(node.rank);
  for (const int rank : linked_ranks(node)) {
    const int other = era_of(node).node_of[static_cast<std::size_t>(rank)];
    const Node& peer = nodes_[static_cast<std::size_t>(other)];
    if (peer.generation == node.generation && !peer.negotiator->is_lost(node.rank)) continue;
    network_.send(other, index_of(node), {node.generation, {}, true});
  }
}

// After an abort when all know of it; after a loss when all have come to their ends without.
void Simulation::consider_reform() {
  if (reform_due_ || !struck_ || reformed_ || fault_ == Fault::kLeave) return;
  for (const Node& node : nodes_) {
    if (!is_survivor(node)) continue;
    if (is_loss() ? !is_finished(node) : node.negotiator->broken().is_ok()) return;
    // One that froze may have gone on before anybody noticed.
    const bool must_know = fault_ == Fault::kKill;
    require(!must_know || node.negotiator->first_loss() != nullptr, "survivors_learn", [&] {
      return "rank " + std::to_string(node.rank) + " is through, and knows of no loss";
    });
  }
  require(is_loss() || network_.now() - struck_at_ < kLearnLimit, "survivors_learn",
          [] { return "a survivor learned of the fault late"; });
  reform_due_ = true;
  network_.after(network_.some_delay(1ms), Event::Kind::kReform, 0, generation_);
}

bool Simulation::is_finished(const Node& node) const {
  const Era& era = *eras_[static_cast<std::size_t>(node.generation) - 1];
  return node.step == era.program.scripts[static_cast<std::size_t>(node.rank)].size();
}

void Simulation::reform() {
  std::vector<int> survivors;
  std::vector<bool> survives(nodes_.size());
  for (Node& node : nodes_) {
    if (!is_survivor(node)) {
      node.left_behind = true;
      continue;
    }
    settle(node);  // it may have heard just now
    check_node_end(node);
    survives[static_cast<std::size_t>(node.rank)] = true;
    survivors.push_back(index_of(node));
  }
  const Topology topology = without_ranks(eras_.front()->program.topology, survives);
  reformed_ = true;
  start_generation(topology, survivors);
  for (int i = 0; i < kStaleReplays; ++i) {
    network_.after(network_.some_delay(2ms), Event::Kind::kStale, rng_.pick(survivors),
                   generation_);
  }
}

}  // namespace kolo::internal
