// Judge: whether what was seen of a trial is what the plan had to lead to. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/chaos/board.h"

namespace kolo::chaos {

// What one rank said of itself, read after its end.
struct Account {
  Phase phase = Phase::kNone;
  std::int64_t steps = 0;
  bool fired = false;
  std::int32_t status = 0;
  Phase failed_in = Phase::kNone;
  std::int64_t entered = 0;
  std::int64_t failed = 0;
  std::string error;
  std::int64_t pending_ended = 0;
  std::int64_t later_ns = 0;
  std::int32_t shutdown_status = 0;
  std::int64_t shutdown_ns = 0;
  std::string complaint;
};
Account account_of(const Cell& cell);

struct Observed {
  Plan plan;
  bool struck = false;  // the moment came, and the victim lived
  std::int64_t fault_began = 0;
  std::int64_t fault_ended = 0;
  std::vector<Account> ranks;
  // Of kolorun; or of each rank. 128 + a signal's number; -1: killed at the time limit.
  std::vector<int> exit_codes;
  std::string words;                   // what all of them printed
  std::vector<std::string> leftovers;  // of the census
};

inline constexpr std::int64_t kStartTimeoutMs = 4000;

// What is wrong, one line each; empty: nothing.
std::vector<std::string> judge(const Observed& observed);

// Nanoseconds from the fault, or from the call if that came later, to a rank's error.
struct Latency {
  std::int64_t ns = 0;
  bool called_later = false;
};
// Of all who were told of the victim's loss while the job was running.
std::vector<Latency> latencies(const Observed& observed);

}  // namespace kolo::chaos
