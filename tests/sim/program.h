// Program: a random parallel program for the simulator: who submits what, in which order.
//
// An Op is one logical operation. A rank's script submits the ops that concern it, round by round,
// in an order of its own; within a round names are distinct, so a program without faults always
// ends. Process sets are made one after the other, so their ids are known here; some are destroyed,
// with operations under way that only some of their ranks submit. Plain values, made from a seed.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/sequencer.h"
#include "coordinator/topology.h"
#include "tests/sim/random.h"

namespace kolo::internal {

struct Op {
  UnitKey key;
  std::vector<UnitPtr> unit_of;  // by rank, as that rank submits it; null: it does not
  std::vector<Nanos> limit_of;   // by rank; kNever: none
  std::vector<int> absent;       // ranks that have joined by then
  StatusCode expected = StatusCode::kOk;
  bool may_time_out = false;
  bool may_abort = false;     // it may wait behind a refused one while its process set ends
  bool inexact = false;       // data whose sum depends on the order
  int payload_percent = 0;    // how likely a rank sends its bytes along, where they are few
  std::uint32_t new_set = 0;  // the id of the process set that it makes
};

struct Step {
  enum class Kind { kSubmit, kRefuse, kJoin, kSleep, kWaitOp, kWaitAll, kWaitJoins, kGoodbye };
  Kind kind = Kind::kSubmit;
  int op = 0;
  std::uint32_t process_set = 0;
  Nanos duration{0};
};

struct Program {
  Topology topology;  // as it begins
  Topology all_sets;  // with the process sets that the program will make
  std::vector<Op> ops;
  std::vector<std::vector<Step>> scripts;  // by rank
  std::vector<SequencerOptions> options;   // by rank
  bool stalls = false;                     // ranks may be warned of, and everything may time out
};

// 4 to 9 ranks on 1 to 3 hosts, the world and more process sets.
[[nodiscard]] Topology random_topology(Rng& rng);
// The survivors of `before`, renumbered in order, with what is left of its process sets.
[[nodiscard]] Topology without_ranks(const Topology& before, const std::vector<bool>& survives);
[[nodiscard]] Program random_program(const Topology& topology, Rng& rng);

}  // namespace kolo::internal
