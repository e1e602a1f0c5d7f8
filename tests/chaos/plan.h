// Plan: what one trial does to a job, all of it drawn from a seed, so that one number does it
// again. Plain numbers only: the director hands the plan to the ranks on the board.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::chaos {

inline constexpr int kMostRanks = 8;

enum class Road : std::int32_t { kShm, kTcp, kHosts };  // the last: 2x2, shared memory with TCP

enum class Fault : std::int32_t {
  kNone,
  kKill,    // SIGKILL
  kFreeze,  // SIGSTOP for longer than the peer timeout, then SIGCONT
  kPause,   // the same for less than half of it: no effect
  kSlow,    // stopped half of the time, a little at a time: no effect
  kLink,    // a host's wire goes down, no RST
  kDrop,    // what a host sends is dropped, what it is sent arrives
  kFail,    // the k-th call of a kind fails during init
  kLimit,   // few descriptors, or little address space
  kDisk,    // no room for the timeline: no effect
  kClock,   // the wall clock jumps: no effect
  kLossy,   // some packets between hosts are lost, from then to the end: no effect
  kDie,     // SIGKILL at the k-th call of a kind during init
};

// Where the victim is when it happens.
enum class Moment : std::int32_t { kInit, kIdle, kNegotiate, kTransfer, kShutdown };

enum class Workload : std::int32_t {
  kMixed,        // all collectives, several in flight
  kAllreduce4M,  // one all-reduce of 4 MiB after the other
  kAllreduce64M,
};

struct Plan {
  std::uint64_t seed = 0;
  Road road = Road::kShm;
  Fault fault = Fault::kNone;
  Moment moment = Moment::kTransfer;
  Workload workload = Workload::kMixed;
  std::int32_t hosts = 1;
  std::array<std::int32_t, kMostRanks> ranks_on{};  // by host
  bool by_kolorun = true;                           // else each rank is started by itself
  std::int32_t victim = 0;
  std::int64_t delay_us = 0;  // from the moment's beginning to the fault
  std::int64_t stop_ms = 0;   // of kFreeze and kPause; how long a kNone or kLossy job goes on
  std::int64_t peer_timeout_ms = 3000;
  std::int64_t largest_bytes = 0;  // of the mixed workload
  std::int64_t ballast_bytes = 0;  // memory that the victim holds besides
  std::int64_t calm_ms = 0;        // who is told does nothing for so long, and then looks around
  std::int32_t call = 0;           // of kFail, index into calls(); of kDie, into deadly_calls()
  std::int32_t nth = 0;            // of these: the nth such call; of kLimit: descriptors, or MiB
  bool address_space = false;      // kLimit: of that, else of descriptors
  std::int32_t loss_percent = 0;   // of kLossy, each way
  bool leaves_early = false;       // survivors shut down before a frozen victim goes on

  [[nodiscard]] int size() const;
  [[nodiscard]] int host_of(int rank) const;
  // Whether all ranks end the job well.
  [[nodiscard]] bool harmless() const;
};

// What can be made to fail.
const std::vector<std::string>& calls();
// Where a rank can be made to die.
const std::vector<std::string>& deadly_calls();

// `fault`: nothing: any that this road can have. `peer_timeout_ms`: 0: drawn, too.
Plan draw_plan(std::uint64_t seed, Road road, std::optional<Fault> fault,
               std::int64_t peer_timeout_ms = 0);

// What the words of the command line mean; nothing: no such word.
std::optional<Road> road_of(std::string_view word);
std::optional<Fault> fault_of(std::string_view word);
const char* word_of(Road road);
const char* word_of(Fault fault);
const char* word_of(Moment moment);
std::string text_of(const Plan& plan);  // for people

}  // namespace kolo::chaos
