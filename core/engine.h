// Engine: the control body of a context. Takes what callers have queued, speaks with the other
// ranks through the negotiator, and hands ordered operations to the executor.
//
// tick() never blocks. Threads: the driver only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "coordinator/liveness.h"
#include "coordinator/negotiator.h"
#include "core/completions.h"
#include "core/executor.h"
#include "core/tensor_queue.h"
#include "transport/control_link.h"

namespace kolo::internal {

class Engine {
 public:
  struct Parts {  // all outlive the engine
    TensorQueue& queue;
    Completions& completions;
    Executor& executor;
    ControlLink& link;
    Logger& logger;
  };

  struct Options {
    SequencerOptions sequencer;
    Nanos peer_timeout = 5s;
    std::vector<std::string> host_names;  // by rank, for people
  };

  Engine(const Topology& topology, int rank, std::uint64_t generation, const Options& options,
         const Parts& parts, Nanos now)
      : negotiator_(topology, rank, generation, options.sequencer),
        host_names_(options.host_names),
        liveness_(topology.linked_ranks(rank), options.peer_timeout, now),
        parts_(parts) {}

  void set_trace(Trace* trace) { trace_ = trace; }

  // One pass over everything that is there now. True if anything moved.
  bool tick(Nanos now);
  // An error of the executor: the context ends with it, and the other ranks are told.
  void fail(const Status& cause, Nanos now);
  // Ends everything here with `cause`, and nothing else.
  void break_with(const Status& cause);

  // When tick() has something to do without any event, at the latest.
  [[nodiscard]] Nanos next_deadline(Nanos now) {
    return std::min(next_due(now), liveness_.next_deadline());
  }
  [[nodiscard]] const Status& broken() const { return negotiator_.broken(); }
  // Some rank (perhaps this one) has said goodbye.
  [[nodiscard]] bool leaving() const { return leaving_; }
  [[nodiscard]] bool said_goodbye() const { return said_goodbye_; }
  [[nodiscard]] std::uint64_t operations() const { return operations_; }

 private:
  bool take_commands(Nanos now);
  bool take_events(Nanos now);
  bool act(Nanos now);
  void keep_time(Nanos now);
  void lose(int rank, const std::string& how);
  // Once its time has come, the negotiator may name a later one: what it said first counts.
  Nanos next_due(Nanos now) { return due_ = std::min(due_, negotiator_.next_deadline(now)); }
  void submit(RequestPtr request, Nanos now);
  void execute(Plan plan, Nanos now);
  void finish(Ticket ticket, const Status& status);

  Negotiator negotiator_;
  std::vector<std::string> host_names_;
  Liveness liveness_;
  Parts parts_;
  Trace* trace_ = nullptr;
  std::unordered_map<Ticket, RequestPtr> negotiating_;
  Nanos next_look_{0};
  Nanos due_ = kNever;  // the earliest time that the negotiator has asked for since its last tick
  bool leaving_ = false;
  bool said_goodbye_ = false;
  std::uint64_t operations_ = 0;
};

}  // namespace kolo::internal
