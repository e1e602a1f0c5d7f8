#include "launcher/verdict.h"

#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <string_view>
#include <tuple>

namespace kolo::internal {
namespace {

constexpr std::size_t kMostLines = 16;  // of a job of thousands the first few tell the story

auto order(const RankEnd& end) {
  return std::make_tuple(end.ended_by_kolorun, end.harmed, end.time, !WIFSIGNALED(end.wait_status));
}

std::string name_of(const RankEnd& end) {
  std::string name = "rank " + std::to_string(end.rank) + " on " + end.host;
  if (end.pid > 0) name += " (pid " + std::to_string(end.pid) + ")";
  return name;
}

std::string how_ended(const RankEnd& end) {
  if (!end.ended_by_kolorun) return describe_status(end.wait_status);
  return (WIFSIGNALED(end.wait_status) ? "ended by kolorun: " : "told to end by kolorun: ") +
         describe_status(end.wait_status);
}

std::string line_of(const RankEnd& end, std::string_view how) {
  const std::string line = name_of(end) + " ";
  if (!end.error.empty()) return line + "could not start: " + end.error;
  if (end.ended_by_kolorun) return line + how_ended(end);
  return line + std::string(how) + ": " + describe_status(end.wait_status);
}

bool is_killed(const RankEnd& end) {
  return !end.ended_by_kolorun && end.error.empty() && WIFSIGNALED(end.wait_status) &&
         WTERMSIG(end.wait_status) == SIGKILL;
}

// `end`: of the lost rank, if that is known.
std::string line_of(const LostRank& lost, const RankEnd* end) {
  std::string why = lost.why;
  constexpr std::string_view kPrefix = " is lost: ";  // "rank 1 on a is lost: silent for ..."
  if (const auto at = why.find(kPrefix); lost.rank >= 0 && at != std::string::npos) {
    why.erase(0, at + kPrefix.size());
  }
  std::replace_if(
      why.begin(), why.end(), [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
  const std::string text = why.empty() ? "" : ": " + why;
  const std::string name = end == nullptr ? "rank " + std::to_string(lost.rank) : name_of(*end);
  const std::string how = end == nullptr ? "" : " (" + how_ended(*end) + ")";
  if (lost.told_by < 0) {
    return lost.rank < 0 ? "the job could not start" + text
                         : name + " kept the job from starting" + how + text;
  }
  const std::string told = ", as rank " + std::to_string(lost.told_by) + " told" + text;
  return lost.rank < 0 ? "the job was ended" + told : name + " was lost" + how + told;
}

}  // namespace

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string describe_status(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return "exit code " + std::to_string(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  const char* name = sigdescr_np(number);
  return "signal " + std::to_string(number) +
         (name == nullptr ? "" : " (" + std::string(name) + ")");
}

std::string describe_interruption(int signal) {
  if (signal == SIGINT) return "interrupted by the user (signal 2, Ctrl-C)";
  return "ended by " + describe_status(signal) + ", sent to kolorun";
}

Verdict judge(std::vector<RankEnd> ends, const Circumstances& circumstances) {
  std::stable_sort(ends.begin(), ends.end(),
                   [](const RankEnd& a, const RankEnd& b) { return order(a) < order(b); });
  Verdict verdict;
  const auto failed = std::find_if(ends.begin(), ends.end(), [](const RankEnd& end) {
    return exit_code_of(end.wait_status) != 0;
  });
  if (failed == ends.end()) return verdict;
  verdict.exit_code = exit_code_of(failed->wait_status);
  const int decisive = failed->rank;
  const int signal = circumstances.signal;
  const auto& lost = circumstances.lost;
  const char* others = "failed too";
  int named = -1;  // a rank of which the first line tells all
  if (signal != 0) {
    if (signal == SIGINT) verdict.exit_code = 128 + SIGINT;
    verdict.lines.push_back(describe_interruption(signal));
    others = "ended after that";
  } else if (lost && (failed->ended_by_kolorun ? failed->rank == lost->rank : failed->harmed)) {
    const auto end = std::ranges::find(ends, lost->rank, &RankEnd::rank);
    verdict.lines.push_back(line_of(*lost, end == ends.end() ? nullptr : &*end));
    others = "failed because of it";
    named = lost->rank;
  }
  std::erase_if(ends, [&](const RankEnd& end) {
    const bool obeyed =
        signal != 0 && WIFSIGNALED(end.wait_status) && WTERMSIG(end.wait_status) == signal;
    return end.rank == named || obeyed ||
           (exit_code_of(end.wait_status) == 0 && !end.ended_by_kolorun);
  });
  const bool has_cause = !verdict.lines.empty();
  std::size_t told = 0;
  for (const RankEnd& end : ends) {
    if (told++ == kMostLines) {
      const std::size_t more = ends.size() - kMostLines;
      verdict.lines.push_back("and " + std::to_string(more) +
                              (more == 1 ? " more rank" : " more ranks"));
      break;
    }
    const bool first = end.rank == decisive && !has_cause;
    verdict.lines.push_back(line_of(end, first ? "failed first" : others));
    if (first && is_killed(end)) verdict.lines.back() += "; out of memory?";
  }
  return verdict;
}

}  // namespace kolo::internal
