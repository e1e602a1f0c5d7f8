#include "tests/sim/simulation.h"

#include <algorithm>

#include "tests/sim/violation.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kMaxSteps = 400'000;
constexpr Nanos kEndOfTime = 200s;  // every program ends long before
constexpr std::size_t kOldFrames = 64;
constexpr std::size_t kTraceLines = 4000;

}  // namespace

Simulation::Simulation(std::uint64_t seed, bool trace)
    : seed_(seed), rng_(seed), network_(rng_), tracing_(trace) {}

void Simulation::add_note(const std::string& text) {
  if (report_.trace.size() >= 2 * kTraceLines) {
    report_.trace.erase(report_.trace.begin(), report_.trace.begin() + kTraceLines);
  }
  report_.trace.push_back("step " + std::to_string(step_) + " at " +
                          std::to_string(network_.now().count()) + " ns: " + text);
}

int Simulation::Era::rank_of(int node) const {
  const auto at = std::find(node_of.begin(), node_of.end(), node);
  return at == node_of.end() ? -1 : static_cast<int>(at - node_of.begin());
}

RunReport Simulation::run() {
  try {
    const Topology topology = random_topology(rng_);
    nodes_.resize(static_cast<std::size_t>(topology.size()));
    std::vector<int> all(nodes_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    start_generation(topology, all);
    if (seed_ % 2 == 1) {
      const int dice = rng_.below(100);
      fault_ = dice < 35   ? Fault::kKill
               : dice < 65 ? Fault::kFreeze
               : dice < 80 ? Fault::kAbort
                           : Fault::kLeave;
      victim_ = rng_.below(topology.size());
      network_.after(network_.some_delay(1500us), Event::Kind::kFault, victim_, generation_);
      if (is_loss() && rng_.chance(35)) {
        network_.after(network_.some_delay(3ms), Event::Kind::kFault, rng_.below(topology.size()),
                       generation_);
      }
    }
    while (!network_.is_empty() && network_.now() < kEndOfTime) {
      const Event event = network_.next();
      ++step_;
      require(step_ < kMaxSteps, "completes",
              [&] { return "the run does not come to rest" + progress_text(); });
      dispatch(event);
    }
    check_end();
  } catch (const Violation& violation) {
    report_.invariant = violation.invariant();
    report_.text = violation.what();
  } catch (const Bug& bug) {
    report_.invariant = "no_bug";
    report_.text = bug.what();
  } catch (const std::exception& error) {
    report_.invariant = "no_bug";
    report_.text = std::string("an exception: ") + error.what();
  }
  if (!report_.invariant.empty()) {
    report_.text += " (step " + std::to_string(step_) + ", at " +
                    std::to_string(network_.now().count()) + " ns, generation " +
                    std::to_string(generation_) + ")";
  }
  for (const auto& era : eras_) {
    report_.ops += era->program.ops.size();
    report_.cuts += era->executor->executed_cuts();
    report_.fused_cuts += era->executor->fused_cuts();
    report_.payload_units += era->executor->payload_units();
    report_.inline_units += era->executor->inline_units();
    report_.log_units += era->executor->log_units();
  }
  return std::move(report_);
}

void Simulation::start_generation(const Topology& topology, const std::vector<int>& nodes) {
  ++generation_;
  auto made = std::make_unique<Era>();
  Era* era = made.get();
  era->program = random_program(topology, rng_);
  era->submitted.resize(nodes.size());
  era->results.resize(era->program.ops.size());
  era->node_of = nodes;
  era->executor = std::make_unique<Executor>(
      era->program, era->submitted, [this, era](int rank, Ticket ticket, const Status& status) {
        end_ticket(era->node(nodes_, rank), ticket, status);
      });
  share_memory(*era);
  eras_.push_back(std::move(made));
  published_.clear();
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    Node node;
    node.rank = static_cast<int>(rank);
    node.generation = generation_;
    join_board(*era, node);
    node.negotiator =
        std::make_unique<Negotiator>(topology, node.rank, generation_, era->program.options[rank],
                                     HostSlots{node.board, node.slots.get()});
    Node& place = nodes_[static_cast<std::size_t>(nodes[rank])];
    place = std::move(node);
    schedule_program(place, network_.some_delay(50us));
  }
  note([&] {
    return "generation " + std::to_string(generation_) + " of " + std::to_string(nodes.size()) +
           " ranks begins";
  });
}

void Simulation::dispatch(const Event& event) {
  if (event.kind == Event::Kind::kFault) {
    return event.generation == generation_ ? strike(event.node) : void();
  }
  if (event.kind == Event::Kind::kReform) return reform();
  Node& node = nodes_[static_cast<std::size_t>(event.node)];
  if (node.dead) return;
  if (event.kind == Event::Kind::kThaw) return thaw(node);
  if (node.frozen) {
    node.inbox.push_back(event);
    return;
  }
  handle(event);
}

void Simulation::handle(const Event& event) {
  Node& node = nodes_[static_cast<std::size_t>(event.node)];
  if (event.kind == Event::Kind::kDeliver) return deliver(event);
  if (event.kind == Event::Kind::kReread) return reread(event.from, event.node);
  if (event.kind == Event::Kind::kStale) {
    if (!old_frames_.empty()) deliver_stale(node, -1, rng_.pick(old_frames_));
    return;
  }
  if (event.generation != node.generation) return;  // meant for an earlier life
  if (event.kind == Event::Kind::kTick) tick(node);
  if (event.kind == Event::Kind::kLook) {
    node.look_due = false;
    look_at_slots(node);
  }
  if (event.kind == Event::Kind::kDrain) {
    node.drain_due = false;
    settle(node);
  }
  if (event.kind == Event::Kind::kProgram) {
    node.program_due = false;
    run_program(node);
  }
}

void Simulation::deliver(const Event& event) {
  Node& node = nodes_[static_cast<std::size_t>(event.node)];
  const Message message = network_.take(event.from, event.node);
  if (message.end) {
    if (message.generation != node.generation) return;
    const int lost = era_of(node).rank_of(event.from);
    note([&] {
      return "rank " + std::to_string(node.rank) + " loses rank " + std::to_string(lost);
    });
    node.negotiator->peer_lost(lost, "connection closed");
    return settle(node);
  }
  if (message.bytes.empty()) return;
  if (message.generation != node.generation) return deliver_stale(node, event.from, message.bytes);
  const int from = era_of(node).rank_of(event.from);
  note([&] {
    return "rank " + std::to_string(node.rank) + " hears rank " + std::to_string(from) + ", " +
           std::to_string(message.bytes.size()) + " bytes";
  });
  const Status status = node.negotiator->receive(from, message.bytes, network_.now());
  require(status.is_ok(), "protocol", [&] {
    return "rank " + std::to_string(node.rank) + " refuses a frame of rank " +
           std::to_string(from) + ": " + status.to_string();
  });
  rng_.chance(30) ? settle_soon(node) : settle(node);
  if (rng_.chance(8)) {
    const Era& era = era_of(node);
    const int to = era.node_of[static_cast<std::size_t>(rng_.pick(linked_ranks(node)))];
    network_.after(network_.some_delay(100us), Event::Kind::kReread, to, node.generation,
                   event.node);
  }
}

// A frame of an older generation must do nothing at all.
void Simulation::deliver_stale(Node& node, int from, const std::string& bytes) {
  settle(node);
  int rank = from < 0 ? -1 : era_of(node).rank_of(from);
  const std::vector<int> linked = linked_ranks(node);
  if (std::find(linked.begin(), linked.end(), rank) == linked.end()) rank = rng_.pick(linked);
  note([&] { return "rank " + std::to_string(node.rank) + " hears a stale frame"; });
  const Status status = node.negotiator->receive(rank, bytes, network_.now());
  const std::vector<Action> actions = node.negotiator->drain(network_.now());
  require(status.is_ok() && actions.empty(), "stale_generation", [&] {
    return "a frame of an older generation acts on rank " + std::to_string(node.rank) + ": " +
           status.to_string();
  });
}

// A window is read again: the sender's latest published parities and payloads once more.
void Simulation::reread(int from, int to) {
  const Node& sender = nodes_[static_cast<std::size_t>(from)];
  const Node& receiver = nodes_[static_cast<std::size_t>(to)];
  if (sender.dead || sender.frozen || sender.generation != receiver.generation) return;
  const auto published = published_.find({from, to});
  if (published == published_.end()) return;
  Frame frame;
  frame.generation = sender.generation;
  for (const auto& [id, parity] : published->second.parities) {
    if (rng_.chance(50)) frame.toggles.push_back({id, parity});
  }
  for (const auto& [place, payload] : published->second.payloads) {
    if (rng_.chance(50)) frame.payloads.push_back(payload);
  }
  if (frame.empty()) return;
  note([&] {
    return "rank " + std::to_string(receiver.rank) + " will read " +
           std::to_string(frame.toggles.size()) + " parities and " +
           std::to_string(frame.payloads.size()) + " payloads of rank " +
           std::to_string(sender.rank) + " again";
  });
  network_.send(from, to, {frame.generation, encode(frame), false});
}

// Of the ranks that have toggled anew (null: all), the payloads of the round before.
void Simulation::Published::take_back(const Toggle& toggle, const std::vector<int>* ranks) {
  std::erase_if(payloads, [&](const auto& entry) {
    const Payload& payload = entry.second;
    const bool concerned =
        ranks == nullptr || std::find(ranks->begin(), ranks->end(), payload.rank) != ranks->end();
    return payload.id == toggle.id && payload.parity != toggle.parity && concerned;
  });
}

void Simulation::tick(Node& node) {
  if (network_.now() < node.tick_at) return;
  node.tick_at = kNever;
  if (node.slots) {
    for (const auto& [key, mark] : node.slots->take_expired(network_.now())) {
      node.negotiator->expire_slot(key, mark);
    }
  }
  node.negotiator->tick(network_.now());
  settle(node);
}

void Simulation::send(Node& node, const SendFrame& frame) {
  ++report_.frames;
  const Era& era = era_of(node);
  const int to = era.node_of[static_cast<std::size_t>(frame.rank)];
  check_frame(node, nodes_[static_cast<std::size_t>(to)], frame.bytes);
  if (generation_ == 1 && fault_ != Fault::kNone) {
    if (old_frames_.size() < kOldFrames) {
      old_frames_.push_back(frame.bytes);
    } else if (rng_.chance(20)) {
      old_frames_[rng_.below(kOldFrames)] = frame.bytes;
    }
  }
  network_.send(index_of(node), to, {node.generation, frame.bytes, false});
}

// What a frame may say, and to whom; and what a window would now hold.
void Simulation::check_frame(const Node& from, const Node& to, const std::string& bytes) {
  const Result<Frame> frame = decode(bytes);
  require(frame.is_ok(), "protocol", [&] { return frame.status().to_string(); });
  const Topology& topology = era_of(from).program.all_sets;
  const int to_rank = era_of(from).rank_of(index_of(to));
  if (topology.host_of(from.rank) != topology.host_of(to_rank)) {
    const bool of_one_host =
        std::any_of(frame->facts.begin(), frame->facts.end(),
                    [&](const Fact& fact) {
                      return fact.unit && topology.is_host_only(fact.unit->key.process_set);
                    }) ||
        std::any_of(frame->toggles.begin(), frame->toggles.end(),
                    [](const Toggle& toggle) { return ResponseCache::is_host_id(toggle.id); }) ||
        std::any_of(frame->payloads.begin(), frame->payloads.end(),
                    [](const Payload& payload) { return ResponseCache::is_host_id(payload.id); });
    require(!of_one_host, "host_only",
            [] { return "a frame between hosts speaks of a process set of one host"; });
  }
  if (from.generation != generation_) return;
  auto& published = published_[{index_of(from), index_of(to)}];
  for (const Payload& payload : frame->payloads) {
    published.payloads[{payload.id, payload.rank}] = payload;
  }
  for (const Toggle& toggle : frame->toggles) {
    published.parities[toggle.id] = toggle.parity;
    published.take_back(toggle, nullptr);
  }
  for (const Fact& fact : frame->facts) {
    if (fact.unit) continue;
    published.parities.erase(fact.id);  // a leader speaks of some of its ranks only
    published.take_back({fact.id, fact.parity}, &fact.ranks);
  }
}

std::vector<int> Simulation::linked_ranks(const Node& node) {
  const Topology& topology = era_of(node).program.topology;
  std::vector<int> ranks;
  for (int rank = 0; rank < topology.size(); ++rank) {
    const bool member =
        topology.leader_of(node.rank) == rank || topology.leader_of(rank) == node.rank;
    const bool leaders = topology.is_leader(node.rank) && topology.is_leader(rank) &&
                         (node.rank == Topology::kRoot || rank == Topology::kRoot);
    if (rank != node.rank && (member || leaders)) ranks.push_back(rank);
  }
  return ranks;
}

// ---- the end

void Simulation::check_node_end(const Node& node) {
  Era& era = era_of(node);
  const auto& submitted = era.submissions(node.rank);
  for (std::size_t i = 0; i < submitted.size(); ++i) {
    require(submitted[i].ended, "completes", [&] {
      return "rank " + std::to_string(node.rank) + ": operation " +
             std::to_string(submitted[i].op) + ", " + unit_text(*submitted[i].unit) +
             ", never ends; next to run: " + era.executor->head_text(node.rank) + progress_text();
    });
  }
}

// Where every rank's program stands.
std::string Simulation::progress_text() {
  std::string text;
  for (const Node& node : nodes_) {
    const auto& script = era_of(node).program.scripts[static_cast<std::size_t>(node.rank)];
    text += "; rank " + std::to_string(node.rank) + " at step " + std::to_string(node.step) +
            " of " + std::to_string(script.size());
    if (node.step < script.size()) {
      const Step& step = script[node.step];
      text += " (kind " + std::to_string(static_cast<int>(step.kind)) + ", operation " +
              std::to_string(step.op) + ", process set " + std::to_string(step.process_set) + ")";
    }
    if (node.board != nullptr) {
      text += ", has followed " + std::to_string(node.board->followed_count()) + " of " +
              std::to_string(node.board->log_end()) + " entries";
      for (const auto& [key, ticket] : node.open) {
        text += ", waits for '" + key.name + "' of process set " + std::to_string(key.process_set);
      }
    }
    for (const std::uint32_t set : node.joining) text += ", joining " + std::to_string(set);
  }
  return text;
}

void Simulation::check_end() {
  const bool breaks = struck_ && fault_ != Fault::kLeave;
  require(!breaks || reformed_, "survivors_learn",
          [] { return "a fault has struck and some survivor does not know"; });
  for (const Node& node : nodes_) {
    if (node.dead) continue;
    check_node_end(node);
    if (node.left_behind || !is_survivor(node)) continue;
    const Era& era = era_of(node);
    const auto& script = era.program.scripts[static_cast<std::size_t>(node.rank)];
    require(node.step == script.size(), "completes", [&] {
      return "rank " + std::to_string(node.rank) + " has stopped at step " +
             std::to_string(node.step) + " of its program" + progress_text();
    });
    require(struck_ || era.executor->is_idle(node.rank), "completes", [&] {
      return "rank " + std::to_string(node.rank) + " still has to run " +
             era.executor->head_text(node.rank);
    });
  }
}

}  // namespace kolo::internal
