// Verdict: what a job's end means: the exit code and the closing lines. Pure.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace kolo::internal {

inline constexpr int kExitUsage = 2;
inline constexpr int kExitOwnFailure = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

struct RankEnd {
  int rank = -1;
  std::string host;
  pid_t pid = 0;
  int wait_status = 0;  // as wait(2) gives it
  Nanos time{};         // on kolorun's clock
  // kolorun had already told this rank to end because of another one's failure.
  bool ended_by_kolorun = false;
  bool harmed = false;  // before its end it had said that another rank's end had ended its job
  std::string error;    // it could not be started: why (wait_status holds 126 or 127)
};

// What a harmed rank has told of the cause of its harm.
struct LostRank {
  int rank = -1;     // -1: no single one
  int told_by = -1;  // -1: kolorun knows it: the job could not start because of it
  std::string why;
};

struct Verdict {
  int exit_code = 0;
  std::vector<std::string> lines;  // empty after success; the first failure comes first
};

// What is known beside the ends themselves.
struct Circumstances {
  std::optional<LostRank> lost;
  int signal = 0;  // kolorun was sent it, to end the job, before any rank had failed
};

// The first failure in time decides; of failures seen at the same instant a death by signal comes
// first (exits tend to follow from it), then whoever stands first in `ends`. Ranks that had been
// harmed before, and those that kolorun ended, count only when no other failed. When one that was
// harmed decides, or the lost rank itself, which kolorun had to end, the lost rank is named as the
// cause: it has ended without a failure, or not at all. After a signal no rank is to blame; when it
// was the user's interruption, the code says so.
Verdict judge(std::vector<RankEnd> ends, const Circumstances& circumstances = {});
// "interrupted by the user (signal 2, Ctrl-C)"; "ended by signal 15 (Terminated), sent to kolorun".
std::string describe_interruption(int signal);

// 128 + signal, or the exit code.
int exit_code_of(int wait_status);
// "exit code 9"; "signal 11 (Segmentation fault)".
std::string describe_status(int wait_status);

}  // namespace kolo::internal
