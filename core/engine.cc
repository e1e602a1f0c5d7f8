#include "core/engine.h"

#include <utility>

#include "base/check.h"

namespace kolo::internal {
namespace {

constexpr Nanos kBetweenLooks = 1ms;  // at time limits, which cost a walk over what is pending

}  // namespace

bool Engine::tick(Nanos now) {
  bool moved = take_commands(now);
  moved = take_events(now) || moved;
  if (now >= next_look_) keep_time(now);
  return act(now) || moved;
}

// After the events, so that a rank that was itself held up hears first what waits for it.
void Engine::keep_time(Nanos now) {
  next_look_ = now + kBetweenLooks;
  if (next_due(now) <= now) {
    due_ = kNever;
    negotiator_.tick(now);
  }
  if (liveness_.take_beat(now)) negotiator_.beat();
  for (const int rank : liveness_.take_silent(now)) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(liveness_.timeout());
    lose(rank, "silent for " + std::to_string(ms.count()) +
                   " ms: frozen, or cut off from the network. Raise KOLO_PEER_TIMEOUT_MS if it was "
                   "only slow");
  }
}

void Engine::lose(int rank, const std::string& how) {
  negotiator_.peer_lost(
      rank, "on " + host_names_.at(static_cast<std::size_t>(rank)) + " is lost: " + how);
}

bool Engine::take_commands(Nanos now) {
  std::vector<Command> commands = parts_.queue.take();
  for (Command& command : commands) {
    if (auto* request = std::get_if<RequestPtr>(&command)) {
      submit(std::move(*request), now);
    } else if (auto* refused = std::get_if<RefusedUnit>(&command)) {
      negotiator_.refuse(std::move(refused->unit));
    } else if (auto* abort = std::get_if<AbortCommand>(&command)) {
      negotiator_.abort(abort->reason);
    } else {
      said_goodbye_ = true;
      negotiator_.goodbye();
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
        lose(event->rank, event->bytes);
        break;
    }
  }
  return moved;
}

bool Engine::act(Nanos now) {
  std::vector<Action> actions = negotiator_.drain(now);
  for (Action& action : actions) {
    if (auto* send = std::get_if<SendFrame>(&action)) {
      // A link that is gone says so through poll(); what is over its bound breaks the context.
      const Status sent = parts_.link.send(send->rank, send->bytes);
      if (sent.code() == StatusCode::kResource) negotiator_.fail(sent);
    } else if (auto* run = std::get_if<Execute>(&action)) {
      execute(std::move(run->plan), now);
    } else if (auto* done = std::get_if<Finish>(&action)) {
      finish(done->ticket, done->status);
    } else if (auto* warn = std::get_if<Warn>(&action)) {
      parts_.logger.warning(warn->text);
    } else if (auto* left = std::get_if<RankLeft>(&action)) {
      leaving_ = true;
      parts_.queue.close(left->status);
      parts_.executor.end_beyond(left->process_set, left->through, left->status);
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
      const auto it = negotiating_.find(planned.ticket);
      KOLO_CHECK(it != negotiating_.end());
      request = it->second;  // stays known here until it is in other hands
      ++operations_;
      trace_phase(trace_, Trace::Phase::kOrdered, request->id, planned.unit->key.name, now);
      request->tensors_left = planned.unit->tensors.size();
      if (request->tensors_left == 0) {
        parts_.completions.finish(request, Status::ok());
      } else if (!planned.payloads.empty()) {
        parts_.executor.complete(request, planned.payloads);
      }
    }
    for (std::size_t i = 0; i < planned.unit->tensors.size(); ++i) {
      places.push_back({request, &planned, i});
    }
  }
  for (const auto& cut : plan.cuts) {
    OrderedOperation ordered;
    for (const std::uint32_t place : cut) {
      KOLO_CHECK(place < places.size());
      const Place& at = places[place];
      // Of a process set without this rank, or complete already.
      if (at.unit->run == 0 || !at.unit->payloads.empty()) continue;
      ordered.process_set = at.unit->unit->key.process_set;
      ordered.run = at.unit->run;
      ordered.tensors.push_back({at.request, at.index});
    }
    if (!ordered.tensors.empty()) parts_.executor.enqueue(std::move(ordered));
  }
  for (const PlannedUnit& planned : plan.units) negotiating_.erase(planned.ticket);
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
  for (auto& [ticket, request] : std::exchange(negotiating_, {})) {
    if (!request->done()) parts_.completions.finish(request, cause);
  }
}

void Engine::fail(const Status& cause, Nanos now) {
  negotiator_.fail(cause);
  act(now);
}

}  // namespace kolo::internal
