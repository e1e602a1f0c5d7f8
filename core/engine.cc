#include "core/engine.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "coordinator/placement.h"
#include "core/stand_in.h"

namespace kolo::internal {
namespace {

constexpr Nanos kBetweenLooks = 1ms;      // at time limits, which cost a walk over what is pending
constexpr int kTicksBetweenWatches = 64;  // of who has died, without news: some 10 us of spinning
// To the link, though no event says so: operations may move without a pause, and who was held up
// hears first what has come meanwhile.
constexpr Nanos kBetweenListens = 20ms;

// Making or ending a process set is all there is to such a unit.
bool changes_sets(const PlannedUnit& planned) {
  return planned.new_set != 0 || ended_set(*planned.unit) != 0;
}

// The numbers of all ranks, by tensor of the unit.
void take_counts(const PlannedUnit& planned, RequestState& request) {
  if (planned.counts.empty()) return;
  request.counts.clear();
  auto next = planned.counts.begin();
  for (const TensorSpec& spec : planned.unit->tensors) {
    request.counts.emplace_back();
    if (spec.is_personal()) request.counts.back() = *next++;
  }
}

}  // namespace

Engine::Engine(const Topology& topology, int rank, std::uint64_t generation, const Options& options,
               const Parts& parts, Nanos now)
    : topology_(topology),
      rank_(rank),
      negotiator_(topology, rank, generation, options.sequencer, {parts.board, this}),
      host_names_(options.host_names),
      liveness_(topology.linked_ranks(rank), options.peer_timeout, now),
      parts_(parts),
      gather_([&executor = parts.executor](RequestState& request,
                                           UnitTable::Contributions contributions) {
        executor.gather_from_slots(request, contributions);
      }),
      board_ranks_(topology.ranks_of_host(topology.host_of(rank))),
      group_planner_(options.sequencer.fusion) {}

bool Engine::tick(Nanos now, bool link_may_have_news) {
  bool moved = take_commands(now);
  const bool listens = link_may_have_news || now >= next_listen_;
  if (listens) {
    next_listen_ = now + kBetweenListens;
    moved = take_events(now) || moved;
  }
  if (listens || ++ticks_ % kTicksBetweenWatches == 0) {
    moved = watch_for_deaths(now) || moved;
  }
  const bool looked = now >= next_look_;
  if (looked) keep_time(now);
  if (leave_by_ != kNever) moved = take_leave(now) || moved;
  if (moved || looked) moved = act(now) || moved;
  if (!left_sets_.empty()) drop_left_sets();
  return parts_.board != nullptr && run_slots(now) ? true : moved;
}

// After the events, so that a rank that was itself held up hears first what waits for it.
void Engine::keep_time(Nanos now) {
  next_look_ = now + kBetweenLooks;
  watch_for_deaths(now);
  judge(now);
  if (parts_.units.next_deadline() <= now) {
    for (const auto& [key, mark] : parts_.units.take_expired(now)) {
      negotiator_.expire_slot(key, mark);
    }
  }
  if (next_due(now) <= now) {
    due_ = kNever;
    negotiator_.tick(now);
  }
  watch_liveness(now);
}

bool Engine::take_commands(Nanos now) {
  std::vector<Command> commands = parts_.queue.take();
  for (Command& command : commands) {
    if (auto* request = std::get_if<RequestPtr>(&command)) {
      submit(std::move(*request), now);
    } else if (auto* refused = std::get_if<RefusedUnit>(&command)) {
      negotiator_.refuse(std::move(refused->unit));
    } else if (auto* joined = std::get_if<JoinCommand>(&command)) {
      join(std::move(joined->request));
    } else if (auto* abort = std::get_if<AbortCommand>(&command)) {
      broken_here_ = true;
      negotiator_.abort(abort->reason);
    } else {
      leave_by_ = now + std::get<GoodbyeCommand>(command).patience;
    }
  }
  return !commands.empty();
}

void Engine::submit(RequestPtr request, Nanos now) {
  const Ticket ticket = request->id;
  trace_phase(trace_, Trace::Phase::kReady, ticket, request->unit->key.name, now);
  const Status status = negotiator_.submit(ticket, request->unit, request->deadline,
                                           parts_.executor.payload_of(*request));
  if (!status) {
    parts_.completions.finish(request, status);
    return;
  }
  negotiating_.emplace(ticket, std::move(request));
}

void Engine::join(RequestPtr request) {
  const std::uint32_t process_set = request->set->id;
  const auto place = joins_.emplace(process_set, std::move(request)).first;
  if (!negotiator_.broken().is_ok()) return end_join(process_set, negotiator_.broken(), -1);
  const ProcessSet& set = *place->second->set;
  if (set.left.load(std::memory_order_relaxed)) return end_join(process_set, set.left_status, -1);
  if (parts_.queue.is_closed()) return end_join(place->first, parts_.queue.closed(), -1);
  if (negotiator_.join(process_set)) return;
  end_join(process_set,
           aborted("the join of process set " + std::to_string(process_set) +
                   " cannot complete: the set has ended, or one of its ranks has left the job"),
           -1);
}

void Engine::end_join(std::uint32_t process_set, const Status& status, int last_rank) {
  const auto node = joins_.extract(process_set);
  if (node.empty()) return;
  const RequestPtr& request = node.mapped();
  if (status.is_ok() && request->number != nullptr) *request->number = last_rank;
  request->set->next_number.store(0, std::memory_order_relaxed);
  request->set->joined.store(false, std::memory_order_relaxed);
  parts_.completions.finish(request, status);
}

bool Engine::take_events(Nanos now) {
  bool moved = false;
  while (auto event = parts_.link.poll()) {
    moved = true;
    switch (event->kind) {
      case ControlEvent::Kind::kFrame: {
        liveness_.heard(event->rank, now);
        const Status status = negotiator_.receive(event->rank, event->bytes, now);
        if (!status) negotiator_.fail(status);
        break;
      }
      case ControlEvent::Kind::kClosed: liveness_.forget(event->rank); break;
      case ControlEvent::Kind::kLost:
        liveness_.forget(event->rank);
        find_ended(event->rank, event->bytes, now);
        break;
    }
  }
  return moved;
}

// Frames go first: a program that learns of its part may end at once.
bool Engine::act(Nanos now) {
  std::vector<Action> actions = negotiator_.drain(now);
  for (const Action& action : actions) {
    const auto* send = std::get_if<SendFrame>(&action);
    if (send == nullptr) continue;
    // A link that is gone says so through poll(); a peer that does not read is as good as frozen.
    const Status sent = parts_.link.send(send->rank, send->bytes);
    if (!send->heartbeat) frames_sent_.fetch_add(1, std::memory_order_relaxed);
    if (sent.code() == StatusCode::kResource) lose(send->rank, sent.text());
  }
  show_harm();
  for (Action& action : actions) {
    if (auto* run = std::get_if<Execute>(&action)) {
      execute(std::move(run->plan), now);
    } else if (auto* done = std::get_if<Finish>(&action)) {
      finish(done->ticket, done->status);
    } else if (auto* warn = std::get_if<Warn>(&action)) {
      parts_.logger.warning(warn->text);
    } else if (auto* joined = std::get_if<JoinEnded>(&action)) {
      end_join(joined->process_set, Status::ok(), joined->last_rank);
    } else if (const auto* closed = std::get_if<SetClosed>(&action)) {
      close_set(*closed);
    } else if (auto* broken = std::get_if<Broken>(&action)) {
      break_with(broken->status);
    }
  }
  return !actions.empty();
}

void Engine::execute(Plan plan, Nanos now) {
  struct Place {
    RequestPtr request;
    const PlannedUnit* unit;
    std::size_t index;
  };
  std::vector<Place> places;
  for (const PlannedUnit& planned : plan.units) {
    RequestPtr request;
    if (planned.run != 0) {
      request = begin_planned(planned, now);
    } else if (planned.ticket == 0 && changes_sets(planned)) {
      change_sets(planned, nullptr);  // this rank's call has ended with a lost rank
    }
    for (std::size_t i = 0; i < planned.unit->tensors.size(); ++i) {
      places.push_back({request, &planned, i});
    }
  }
  for (const auto& cut : plan.cuts) {
    OrderedOperation* ordered = nullptr;
    for (const std::uint32_t place : cut) {
      KOLO_CHECK(place < places.size());
      const Place& at = places[place];
      // Of a process set without this rank, or complete already.
      if (at.request == nullptr || at.request->tensors_left == 0) continue;
      if (ordered == nullptr) ordered = &parts_.executor.enqueue();
      ordered->process_set = at.unit->unit->key.process_set;
      ordered->run = at.unit->run;
      ordered->tensors.push_back({at.request, at.index});
    }
  }
  for (const PlannedUnit& planned : plan.units) negotiating_.erase(planned.ticket);
}

// What is complete by being ordered is completed here.
RequestPtr Engine::begin_planned(const PlannedUnit& planned, Nanos now) {
  RequestPtr request;
  if (planned.ticket == 0) {
    request = stand_in(planned);
  } else {
    const auto it = negotiating_.find(planned.ticket);
    KOLO_CHECK(it != negotiating_.end());
    request = it->second;  // stays known here until it is in other hands
  }
  trace_phase(trace_, Trace::Phase::kOrdered, request->id, planned.unit->key.name, now);
  if (planned.ticket != 0 && is_on_a_device(*planned.unit)) request->unit = planned.unit;
  request->absent = static_cast<int>(planned.absent.size());
  request->tensors_left = planned.unit->tensors.size();
  if (planned.ticket != 0) take_counts(planned, *request);
  if (request->allocates && !allocate_output(request)) return request;
  if (changes_sets(planned)) {
    change_sets(planned, request->number);
    request->tensors_left = 0;
  }
  if (request->tensors_left == 0) {
    parts_.completions.finish(request, Status::ok());
  } else if (!planned.payloads.empty()) {
    parts_.executor.complete(request, planned.payloads);
  }
  return request;
}

// Without memory for it the operation ends here, and the others cannot go on with it alone.
bool Engine::allocate_output(const RequestPtr& request) {
  try {
    give_output(*request);
    return true;
  } catch (const std::bad_alloc&) {
    const TensorSpec& spec = request->unit->tensors.front();
    const Status status =
        resource_error(unit_text(*request->unit) + ": no memory for its output of " +
                       std::to_string(request->output_count) + " elements of " +
                       std::string(data_type_name(spec.dtype)) +
                       " on this rank. Give the right counts, or gather less at once");
    request->tensors_left = 0;
    parts_.completions.finish(request, status);
    negotiator_.fail(status);
    return false;
  }
}

// This rank has joined: what it brings to the others' operation.
RequestPtr Engine::stand_in(const PlannedUnit& planned) {
  RequestPtr request = parts_.requests.make();
  request->set = *parts_.sets.find(static_cast<std::int32_t>(planned.unit->key.process_set));
  request->unit = planned.unit;
  request->phase.store(RequestState::Phase::kRunning, std::memory_order_relaxed);
  take_counts(planned, *request);
  give_neutral_buffers(*request);
  return request;
}

void Engine::change_sets(const PlannedUnit& planned, std::int32_t* number) {
  const TensorSpec& spec = planned.unit->tensors.front();
  if (planned.new_set != 0) {
    const std::vector<int> ranks(spec.shape.begin(), spec.shape.end());
    topology_.add_process_set(planned.new_set, ranks);
    const ProcessSet& set = parts_.sets.add(planned.new_set, ranks);
    const Result<SetRoads::Opened> road = parts_.roads.open(set);
    if (!road) {
      negotiator_.fail(road.status());
    } else if (road->collectives != nullptr) {
      parts_.executor.add_set(set.id, *road->collectives, road->stream);
    }
    if (number != nullptr) *number = static_cast<std::int32_t>(set.id);
    return;
  }
  const auto id = static_cast<std::uint32_t>(spec.shape.front());
  end_join(id,
           aborted("process set " + std::to_string(id) +
                   " was destroyed while some of its ranks had not joined. Join on all before it"),
           -1);
  if (const auto set = parts_.sets.find(static_cast<std::int32_t>(id))) parts_.roads.close(**set);
  parts_.sets.retire(id);
  parts_.executor.close_set(id);
}

void Engine::finish(Ticket ticket, const Status& status) {
  const auto it = negotiating_.find(ticket);
  KOLO_CHECK(it != negotiating_.end());
  const RequestPtr request = std::move(it->second);
  negotiating_.erase(it);
  parts_.completions.finish(request, status);
}

void Engine::break_with(const Status& cause) {
  parts_.queue.close(cause);
  parts_.executor.end_all(cause);
  end_published(std::nullopt, cause);
  while (!joins_.empty()) end_join(joins_.begin()->first, cause, -1);
  for (auto& [ticket, request] : std::exchange(negotiating_, {})) {
    if (!request->done()) parts_.completions.finish(request, cause);
  }
}

bool Engine::cut_off(const Status& cause, Nanos now) {
  take_commands(now);
  const bool any = !negotiating_.empty() || !joins_.empty() || parts_.units.under_way() > 0 ||
                   !parts_.executor.idle();
  break_with(cause);
  return any;
}

// ---- Slots ------------------------------------------------------------------------------------

bool Engine::complete_inline(const RequestPtr& request) {
  if (!parts_.units.complete(request, gather_)) return false;
  parts_.completions.finish(request, Status::ok());
  return true;
}

bool Engine::run_slots(Nanos now) {
  bool moved = false;
  while (const RequestPtr request = parts_.units.complete_any(gather_)) {
    parts_.completions.finish(request, Status::ok());
    moved = true;
  }
  if (negotiator_.order_slots(now)) {
    parts_.window->ring_all();
    wake_laggards();
    moved = true;
  }
  const std::uint64_t followed = parts_.board->followed_count();
  while (true) {
    LogEntry entry;
    const Negotiator::Step step = negotiator_.follow_log(entry);
    if (step == Negotiator::Step::kNone) break;
    moved = true;
    if (step == Negotiator::Step::kItem) {
      act(now);
    } else {
      take_ordered(entry);
    }
  }
  if (parts_.board->has_made_room(followed)) parts_.window->ring(0);
  return moved;
}

// Idle ranks outside of the busy sets: the log must not fill because of them.
void Engine::wake_laggards() {
  if (!parts_.board->log_fills()) return;
  for (int peer = 0; peer < parts_.window->size(); ++peer) {
    if (parts_.board->is_laggard(peer)) parts_.window->wake_up(peer);
  }
}

// The next unit of a cut. All units of a cut are of one process set.
void Engine::take_ordered(const LogEntry& entry) {
  const RequestPtr request = parts_.units.ordered(entry.slot, entry.id);
  if (request != nullptr) {
    const std::uint32_t process_set = request->unit->key.process_set;
    if (cut_run_ == 0) cut_run_ = negotiator_.count_run(process_set);
    if (request->unit->group) {
      enqueue_group(request, cut_run_);
    } else {
      if (cut_ == nullptr) {
        cut_ = &parts_.executor.enqueue();
        cut_->process_set = process_set;
        cut_->run = cut_run_;
      }
      cut_->tensors.push_back({request, 0});
    }
  }
  if (!entry.ends_cut) return;
  cut_ = nullptr;
  cut_run_ = 0;
}

// A group has its log entry for itself, and is cut the same way on all ranks.
void Engine::enqueue_group(const RequestPtr& group, std::uint64_t run) {
  const Unit& unit = *group->unit;
  group_items_.clear();
  for (const TensorSpec& spec : unit.tensors) {
    group_items_.push_back(fusion_item(unit.key.process_set, spec));
  }
  const auto cut_of = group_planner_.assign(group_items_);
  for (std::uint32_t cut = 0; cut < group_planner_.cuts(); ++cut) {
    OrderedOperation& ordered = parts_.executor.enqueue();
    ordered.process_set = unit.key.process_set;
    ordered.run = run;
    for (std::size_t i = 0; i < cut_of.size(); ++i) {
      if (cut_of[i] == cut) ordered.tensors.push_back({group, i});
    }
  }
}

void Engine::learned(std::uint64_t id, std::uint32_t slot, bool inlined, const UnitPtr& unit) {
  auto [place, is_new] = members_.try_emplace(unit->key.process_set);
  if (is_new) {
    const std::vector<int>& ranks = topology_.ranks_of_set(unit->key.process_set);
    for (std::size_t member = 0; member < board_ranks_.size(); ++member) {
      if (std::find(ranks.begin(), ranks.end(), board_ranks_[member]) != ranks.end()) {
        place->second.push_back(static_cast<int>(member));
      }
    }
  }
  parts_.units.learn(id, slot, inlined, unit, place->second);
}

std::optional<SlotSubmission> Engine::forgotten(std::uint64_t id, const UnitKey& key) {
  RequestPtr completed;
  RequestPtr request = parts_.units.forget(key, id, gather_, completed);
  if (completed != nullptr) parts_.completions.finish(completed, Status::ok());
  if (request == nullptr) return std::nullopt;
  const SlotSubmission submission{request->id, request->unit, request->deadline};
  negotiating_.emplace(request->id, std::move(request));
  return submission;
}

// What is published in slots and neither complete nor ordered will not be any more.
void Engine::end_published(std::optional<std::uint32_t> process_set, const Status& status) {
  while (const RequestPtr request = parts_.units.complete_any(gather_)) {
    parts_.completions.finish(request, Status::ok());
  }
  for (const RequestPtr& request : parts_.units.give_up(process_set)) {
    parts_.completions.finish(request, status);
  }
}

void Engine::fail(const Status& cause, Nanos now) {
  broken_here_ = true;
  negotiator_.fail(cause);
  act(now);
}

}  // namespace kolo::internal
