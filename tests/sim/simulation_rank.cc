// What one simulated rank does: its program, and the actions of its negotiator.
#include <algorithm>

#include "tests/sim/simulation.h"
#include "tests/sim/violation.h"

namespace kolo::internal {

bool Simulation::is_calm(const Node& node, std::uint32_t process_set) const {
  if (node.left_behind) return false;
  if (!struck_ || reformed_) return true;
  const Topology& topology = eras_.back()->program.all_sets;
  if (fault_ == Fault::kLeave) return !topology.depends_on(process_set, victim_);
  if (!is_loss() || unfinished_.contains(process_set)) return false;
  return std::none_of(lost_.begin(), lost_.end(),
                      [&](int lost) { return topology.depends_on(process_set, lost); });
}

void Simulation::schedule_program(Node& node, Nanos delay) {
  if (node.program_due) return;
  node.program_due = true;
  network_.at(std::max(network_.now() + delay, node.sleeps_until), Event::Kind::kProgram,
              index_of(node), node.generation);
}

void Simulation::run_program(Node& node) {
  if (network_.now() < node.sleeps_until) return schedule_program(node, Nanos(0));
  const auto& script = era_of(node).program.scripts[static_cast<std::size_t>(node.rank)];
  while (node.step < script.size()) {
    const Step& step = script[node.step];
    if (!run_step(node, step)) break;  // the end of something will wake it
    ++node.step;
    if (step.kind == Step::Kind::kSleep || rng_.chance(30)) {
      schedule_program(node, network_.some_delay(15us));
      break;
    }
  }
  rng_.chance(40) ? settle_soon(node) : settle(node);
  if (node.step == script.size()) consider_reform();
}

// The last barrier tells that all is done; where it may fail, look instead.
bool Simulation::may_leave(Node& node) {
  const Era& era = era_of(node);
  const bool broken = !node.negotiator->broken().is_ok();
  const bool barrier_tells = !era.program.stalls && (!struck_ || reformed_);
  if (broken || barrier_tells) return true;
  for (const int index : era.node_of) {
    const Node& other = nodes_[static_cast<std::size_t>(index)];
    const auto& script = era.program.scripts[static_cast<std::size_t>(other.rank)];
    if (!is_survivor(other) || other.generation != node.generation) continue;
    if (other.step + 1 >= script.size()) continue;
    schedule_program(node, 1ms);
    return false;
  }
  return true;
}

// False: not yet.
bool Simulation::run_step(Node& node, const Step& step) {
  const Op* op = nullptr;
  const auto wait_for_set = [&](std::uint32_t set) { return node.joining.contains(set); };
  switch (step.kind) {
    case Step::Kind::kSleep: node.sleeps_until = network_.now() + step.duration; return true;
    case Step::Kind::kWaitAll: return node.open.empty();
    case Step::Kind::kWaitOp:
      return !node.open.contains(era_of(node).program.ops[static_cast<std::size_t>(step.op)].key);
    case Step::Kind::kWaitJoins: return node.joining.empty();
    case Step::Kind::kGoodbye:
      if (!may_leave(node)) return false;
      take_commands(node);
      node.negotiator->goodbye();
      return true;
    case Step::Kind::kJoin:
      if (wait_for_set(step.process_set)) return false;
      if (!node.negotiator->broken().is_ok()) return true;
      if (node.closed.contains(step.process_set)) return true;  // it would not end
      take_commands(node);
      if (node.negotiator->join(step.process_set)) node.joining.insert(step.process_set);
      return true;
    case Step::Kind::kSubmit:
    case Step::Kind::kRefuse: break;
  }
  op = &era_of(node).program.ops[static_cast<std::size_t>(step.op)];
  if (node.open.contains(op->key) || wait_for_set(op->key.process_set)) return false;
  if (step.kind == Step::Kind::kSubmit) {
    submit(node, step);
  } else {
    if (node.slots) node.slots->refuse(op->key);
    node.commands.push_back({.unit = op->unit_of[static_cast<std::size_t>(node.rank)]});
    if (!node.slots || rng_.chance(50)) take_commands(node);
  }
  return true;
}

void Simulation::submit(Node& node, const Step& step) {
  Era& era = era_of(node);
  const Op& op = era.program.ops[static_cast<std::size_t>(step.op)];
  const auto rank = static_cast<std::size_t>(node.rank);
  auto& mine = era.submitted[rank];
  std::optional<std::string> payload;
  if (rng_.chance(op.payload_percent)) {
    payload = payload_of(step.op, node.rank, *op.unit_of[rank], op.inexact);
  }
  mine.push_back({.op = step.op,
                  .unit = op.unit_of[rank],
                  .tensors_left = op.unit_of[rank]->tensors.size(),
                  .with_payload = payload.has_value()});
  const Ticket ticket = mine.size();
  node.open[op.key] = ticket;
  const Nanos limit = op.limit_of[rank];
  const Nanos deadline = limit == kNever ? kNever : network_.now() + limit;
  note([&] {
    return "rank " + std::to_string(node.rank) + " submits operation " + std::to_string(step.op) +
           ", " + unit_text(*op.unit_of[rank]) + ", process set " +
           std::to_string(op.key.process_set) + (payload ? ", with its bytes" : "");
  });
  Command command{ticket, op.unit_of[rank], deadline, std::move(payload)};
  if (publish(node, command)) return;
  node.commands.push_back(std::move(command));
  if (!node.slots || rng_.chance(50)) take_commands(node);
}

// What the program has said since the negotiator last listened.
void Simulation::take_commands(Node& node) {
  for (Command& command : std::exchange(node.commands, {})) {
    if (command.ticket == 0) {
      node.negotiator->refuse(std::move(command.unit));
    } else {
      negotiate(node, std::move(command));
    }
  }
}

void Simulation::negotiate(Node& node, Command command) {
  const Ticket ticket = command.ticket;
  const Submitted submitted = era_of(node).submissions(node.rank)[ticket - 1];
  const UnitKey key = command.unit->key;
  const Status status = node.negotiator->submit(ticket, std::move(command.unit), command.deadline,
                                                std::move(command.payload));
  if (status.is_ok()) return;
  require(!is_calm(node, key.process_set), "submits", [&] {
    return "rank " + std::to_string(node.rank) + ", operation " + std::to_string(submitted.op) +
           ": " + status.to_string();
  });
  node.closed.insert(key.process_set);  // some rank is gone, and this one has heard it
  end_ticket(node, ticket, status);
}

void Simulation::settle_soon(Node& node) {
  if (node.drain_due) return;
  node.drain_due = true;
  network_.after(network_.some_delay(20us), Event::Kind::kDrain, index_of(node), node.generation);
}

void Simulation::settle(Node& node) {
  take_commands(node);
  for (;;) {
    std::vector<Action> actions = node.negotiator->drain(network_.now());
    if (actions.empty()) break;
    for (Action& action : actions) act(node, action);
  }
  if (node.slots) look_soon(node);
  if (is_over(node)) return;
  Nanos next = node.negotiator->next_deadline(network_.now());
  if (node.slots) next = std::min(next, node.slots->next_deadline());
  if (next < node.tick_at) {
    node.tick_at = std::max(next, network_.now() + 1us);
    network_.at(node.tick_at, Event::Kind::kTick, index_of(node), node.generation);
  }
}

void Simulation::act(Node& node, Action& action) {
  Era& era = era_of(node);
  const auto who = [&] { return "rank " + std::to_string(node.rank) + ": "; };
  if (const auto* frame = std::get_if<SendFrame>(&action)) return send(node, *frame);
  if (auto* run = std::get_if<Execute>(&action)) return execute(node, run->plan);
  if (const auto* finish = std::get_if<Finish>(&action)) {
    return end_ticket(node, finish->ticket, finish->status);
  }
  if (const auto* warn = std::get_if<Warn>(&action)) {
    require(era.program.stalls || !is_calm(node, 0), "no_warning",
            [&] { return who() + warn->text + progress_text(); });
    return;
  }
  if (const auto* ended = std::get_if<JoinEnded>(&action)) return join_ended(node, *ended);
  if (const auto* closed = std::get_if<SetClosed>(&action)) {
    set_closed(node, *closed);
  } else {
    const Status& status = std::get<Broken>(action).status;
    note([&] { return who() + "broken: " + status.to_string(); });
    const bool may_break = node.left_behind || !is_survivor(node) ||
                           (struck_ && !reformed_ && fault_ == Fault::kAbort);
    require(may_break, "stays_whole", [&] { return who() + status.to_string(); });
    era.executor->cut_off_all(node.rank, status);
    end_published(node, std::nullopt, status);
    node.joining.clear();
    consider_reform();
  }
  schedule_program(node, network_.some_delay(10us));
}

void Simulation::set_closed(Node& node, const SetClosed& closed) {
  const std::uint32_t set = closed.process_set;
  const auto text = [&] {
    return "rank " + std::to_string(node.rank) + ": process set " + std::to_string(set) +
           " is closed: " + closed.status.to_string();
  };
  note(text);
  const bool leaves = closed.status.code() == StatusCode::kAborted;  // as all do in the end
  require(leaves || !is_calm(node, set), "stays_open", text);
  end_published(node, set, closed.status);
  era_of(node).executor->cut_off(node.rank, set, closed.through, closed.status);
  node.joining.erase(set);
  node.closed.insert(set);
}

void Simulation::execute(Node& node, Plan& plan) {
  note([&] {
    return "rank " + std::to_string(node.rank) + ": plan of " + std::to_string(plan.cuts.size()) +
           " cuts";
  });
  for (PlannedUnit& planned : plan.units) {
    const std::uint32_t set = planned.unit->key.process_set;
    require(planned.run == 0 || !node.ended.contains(set), "ended_set", [&] {
      return "rank " + std::to_string(node.rank) + " is to run " + unit_text(*planned.unit) +
             " of process set " + std::to_string(set) + ", which has ended";
    });
    if (planned.unit->group) continue;
    if (!is_set_change(planned.unit->tensors.front().kind)) continue;
    change_set(node, planned);
    planned.run = 0;  // that is all there is to it
  }
  era_of(node).executor->execute(node.rank, plan);
}

void Simulation::change_set(Node& node, const PlannedUnit& planned) {
  if (planned.new_set != 0) node.made.insert(planned.new_set);
  if (const std::uint32_t ended = ended_set(*planned.unit); ended != 0) {
    node.ended.insert(ended);
    node.joining.erase(ended);
    if (node.slots) {
      require(node.slots->give_up(ended).empty(), "ended_set",
              [&] { return "process set " + std::to_string(ended) + " ends with slots in use"; });
    }
  }
  if (planned.run == 0) return;  // this rank's call has ended with a lost rank
  Submitted& submitted = era_of(node).submissions(node.rank).at(planned.ticket - 1);
  const Op& op = era_of(node).program.ops[static_cast<std::size_t>(submitted.op)];
  require(planned.new_set == op.new_set, "same_set", [&] {
    return "rank " + std::to_string(node.rank) + ", " + unit_text(*planned.unit) +
           ": process set " + std::to_string(planned.new_set) + ", expected " +
           std::to_string(op.new_set);
  });
  submitted.by_payloads = true;  // it needs nobody any more
  submitted.tensors_left = 0;
  end_ticket(node, planned.ticket, Status::ok());
}

void Simulation::join_ended(Node& node, const JoinEnded& ended) {
  const std::size_t count = node.joins_ended[ended.process_set]++;
  const auto [first, is_new] =
      era_of(node).join_ends.try_emplace({ended.process_set, count}, ended.last_rank);
  require(first->second == ended.last_rank, "same_plan", [&] {
    return "rank " + std::to_string(node.rank) + " hears that rank " +
           std::to_string(ended.last_rank) + " joined last, another rank that it was rank " +
           std::to_string(first->second);
  });
  const bool waits = node.joining.erase(ended.process_set) > 0;
  require(waits || !is_calm(node, ended.process_set), "join_ends_once", [&] {
    return "rank " + std::to_string(node.rank) + ": the end of a join that it is not in";
  });
  schedule_program(node, network_.some_delay(10us));
}

void Simulation::end_ticket(Node& node, Ticket ticket, const Status& status) {
  Era& era = era_of(node);
  auto& mine = era.submissions(node.rank);
  const auto who = [&] {
    return "rank " + std::to_string(node.rank) + ", ticket " + std::to_string(ticket);
  };
  require(ticket > 0 && ticket <= mine.size(), "one_end",
          [&] { return who() + ": unknown ticket"; });
  Submitted& submitted = mine[static_cast<std::size_t>(ticket) - 1];
  const Op& op = era.program.ops[static_cast<std::size_t>(submitted.op)];
  note([&] {
    return who() + ": operation " + std::to_string(submitted.op) + ", " +
           unit_text(*submitted.unit) + ", ends: " + status.to_string();
  });
  require(!submitted.ended, "one_end", [&] {
    return who() + ", " + unit_text(*submitted.unit) + ": ends a second time, with " +
           status.to_string();
  });
  submitted.ended = true;
  node.open.erase(op.key);
  check_outcome(node, op, submitted, status);
  schedule_program(node, network_.some_delay(10us));
}

void Simulation::check_outcome(const Node& node, const Op& op, const Submitted& submitted,
                               const Status& status) {
  OpResult& result = era_of(node).results[static_cast<std::size_t>(submitted.op)];
  const auto what = [&] {
    return "rank " + std::to_string(node.rank) + ", operation " + std::to_string(submitted.op) +
           ", " + unit_text(*submitted.unit) + ": " + status.to_string();
  };
  ++(status.is_ok() ? result.executed : result.failed);
  result.by_payloads = result.by_payloads || submitted.by_payloads;
  const bool calm = is_calm(node, op.key.process_set);
  // A fault may overtake an order, and who has heard the order needs nobody any more.
  const bool may_differ = result.by_payloads && !calm;
  require(result.executed == 0 || result.failed == 0 || may_differ, "same_outcome",
          [&] { return what() + ", while it went otherwise on other ranks"; });
  if (!calm) return;
  // A rank may have been held up by operations of the lost one.
  const bool limited = struck_ && !reformed_ && is_loss() &&
                       std::ranges::any_of(op.limit_of, [](Nanos l) { return l != kNever; });
  const bool in_time = status.is_ok() || status.code() == StatusCode::kTimedOut;
  const bool expected = status.code() == op.expected || (limited && in_time) ||
                        (op.may_time_out && status.code() == StatusCode::kTimedOut) ||
                        (op.may_abort && status.code() == StatusCode::kAborted);
  require(expected, "expected_outcome",
          [&] { return what() + "; expected " + status_code_name(op.expected); });
  if (result.executed + result.failed == 1) result.code = status.code();
  require(result.code == status.code(), "same_outcome",
          [&] { return what() + "; other ranks heard " + status_code_name(result.code); });
}

}  // namespace kolo::internal
