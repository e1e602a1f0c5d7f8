// What one simulated rank does with the slots of its host: core's engine, with its steps apart.
#include <algorithm>

#include "tests/sim/simulation.h"
#include "tests/sim/violation.h"

namespace kolo::internal {
namespace {

constexpr Nanos kStall = 3ms;
constexpr int kStallPercent = 1;
constexpr Nanos kUntilThereIsRoom = 200us;

}  // namespace

// In most runs the ranks of a host share memory; it is small, so that its log wraps around, and
// faster or slower than the network.
void Simulation::share_memory(Era& era) {
  if (!rng_.chance(65)) return;
  const Topology& topology = era.program.topology;
  const std::uint32_t slots = rng_.pick(std::vector<std::uint32_t>{2, 4, 16, 64});
  for (const int leader : topology.leaders()) {
    const int host = topology.host_of(leader);
    const auto ranks = static_cast<int>(topology.ranks_of_host(host).size());
    era.boards.push_back(std::make_unique<SlotBoards>(slots, ranks));
  }
  era.look_delay = rng_.pick(std::vector<Nanos>{1us, 15us, 100us, 400us});
}

void Simulation::join_board(Era& era, Node& node) {
  if (era.boards.empty()) return;
  const Topology& topology = era.program.all_sets;
  const int host = topology.host_of(node.rank);
  const std::vector<int> local = topology.ranks_of_host(host);
  const auto place = std::find(local.begin(), local.end(), node.rank) - local.begin();
  node.board = &era.boards[static_cast<std::size_t>(host)]->of(static_cast<int>(place));
  node.slots = std::make_unique<SlotTable>(
      topology, node.rank, *node.board,
      [&era, rank = node.rank](Ticket ticket, const UnitPtr& unit, const auto& payloads) {
        era.executor->complete_slot(rank, ticket, unit, payloads);
      },
      [this, &era, generation = node.generation](int rank) {
        Node& other = era.node(nodes_, rank);
        if (other.generation == generation) look_soon(other);  // else it is not there any more
      });
}

// A known unit goes through its slot, and the others of the host may see it at once.
bool Simulation::publish(Node& node, const Command& command) {
  const std::uint32_t set = command.unit->key.process_set;
  if (!node.slots || !node.negotiator->broken().is_ok() || node.closed.contains(set)) return false;
  Submitted& submitted = era_of(node).submissions(node.rank)[command.ticket - 1];
  const int op = submitted.op;
  const bool inexact = era_of(node).program.ops[static_cast<std::size_t>(op)].inexact;
  const auto payload = payload_of(op, node.rank, *command.unit, inexact);
  const bool had_payload = std::exchange(submitted.with_payload, payload.has_value());
  if (!node.slots->publish(command.ticket, command.unit, command.deadline, payload.value_or(""))) {
    submitted.with_payload = had_payload;
    return false;
  }
  note([&] {
    return "rank " + std::to_string(node.rank) + " publishes ticket " +
           std::to_string(command.ticket) + " in its slot";
  });
  if (rng_.chance(50)) node.slots->complete_one();  // the submitting thread looks itself
  return true;
}

void Simulation::look_soon(Node& node) {
  if (node.look_due) return;
  node.look_due = true;
  const Nanos most = rng_.chance(kStallPercent) ? kStall : era_of(node).look_delay;
  network_.after(network_.some_delay(most), Event::Kind::kLook, index_of(node), node.generation);
}

// Some of what there is to do now; the rest later.
void Simulation::look_at_slots(Node& node) {
  bool more = false;
  while (!more && node.slots->complete_one()) more = rng_.chance(20);
  const bool leads = node.board->rank() == 0;
  if (leads && rng_.chance(20)) {
    more = true;
  } else if (node.negotiator->order_slots(network_.now())) {
    const Topology& topology = era_of(node).program.topology;
    for (const int rank : topology.ranks_of_host(topology.host_of(node.rank))) {
      Node& other = era_of(node).node(nodes_, rank);
      if (other.generation == node.generation) look_soon(other);
    }
  }
  more = follow_log(node) || more;
  if (more) look_soon(node);
  if (leads && node.board->log_room() < node.board->slots() && node.negotiator->broken().is_ok() &&
      !node.look_due) {
    node.look_due = true;
    network_.after(kUntilThereIsRoom, Event::Kind::kLook, index_of(node), node.generation);
  }
}

// True if there may be more: it stops now and then, but not within a fused operation.
bool Simulation::follow_log(Node& node) {
  while (true) {
    LogEntry entry;
    const Negotiator::Step step = node.negotiator->follow_log(entry);
    if (step == Negotiator::Step::kNone) return false;
    if (step == Negotiator::Step::kItem) {
      settle(node);
    } else {
      take_ordered(node, entry);
    }
    if (rng_.chance(25)) return true;
  }
}

// All units of a fused operation, of which `entry` is the first.
void Simulation::take_ordered(Node& node, LogEntry entry) {
  Executor& executor = *era_of(node).executor;
  const auto& options = era_of(node).program.options.front();  // rank 0's, as in a context
  std::vector<Executor::Part> parts;
  std::uint64_t run = 0;
  while (true) {
    const SlotSubmission mine = node.slots->ordered(entry);
    require(mine.ticket != 0 || !node.slots->knows(entry) || !node.closed.empty(), "same_plan",
            [&] {
              return "rank " + std::to_string(node.rank) +
                     ": the log orders a unit that this rank has not published";
            });
    if (mine.ticket != 0) {
      require(!node.ended.contains(mine.unit->key.process_set), "ended_set",
              [] { return "the log orders a unit of a process set that has ended"; });
      if (run == 0) run = node.negotiator->count_run(mine.unit->key.process_set);
      const auto& tensors = mine.unit->tensors;
      if (mine.unit->group) {
        std::vector<FusionItem> items;
        for (const TensorSpec& spec : tensors) {
          items.push_back(fusion_item(mine.unit->key.process_set, spec));
        }
        FusionPlanner planner(options.fusion);
        const auto cut_of = planner.assign(items);
        for (std::uint32_t cut = 0; cut < planner.cuts(); ++cut) {
          std::vector<Executor::Part> members;
          for (std::size_t i = 0; i < cut_of.size(); ++i) {
            if (cut_of[i] == cut) members.push_back({mine.ticket, mine.unit, i});
          }
          executor.execute_slots(node.rank, run, std::move(members));
        }
      } else {
        parts.push_back({mine.ticket, mine.unit, 0});
      }
    }
    if (entry.ends_cut) break;
    const Negotiator::Step step = node.negotiator->follow_log(entry);
    require(step == Negotiator::Step::kSlot, "same_plan", [&] {
      return "rank " + std::to_string(node.rank) + ": a fused operation is interrupted in the log";
    });
  }
  if (!parts.empty()) executor.execute_slots(node.rank, run, std::move(parts));
}

// What is published in slots and neither complete nor ordered will not be any more.
void Simulation::end_published(Node& node, std::optional<std::uint32_t> process_set,
                               const Status& status) {
  if (!node.slots) return;
  while (node.slots->complete_one()) {
  }
  for (const Ticket ticket : node.slots->give_up(process_set)) end_ticket(node, ticket, status);
}

// All ranks of its generation have done what they had to do, so that nothing is waited for.
bool Simulation::is_over(const Node& node) {
  const Era& era = era_of(node);
  return std::all_of(era.node_of.begin(), era.node_of.end(), [&](int index) {
    const Node& other = nodes_[static_cast<std::size_t>(index)];
    if (other.dead || other.generation != node.generation) return true;
    return other.step == era.program.scripts[static_cast<std::size_t>(other.rank)].size();
  });
}

}  // namespace kolo::internal
