#include "launcher/verdict.h"

#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <tuple>

namespace kolo::internal {
namespace {

constexpr std::size_t kMostLines = 16;  // of a job of thousands the first few tell the story

auto order(const RankEnd& end) {
  return std::make_tuple(end.ended_by_kolorun, end.harmed, end.time, !WIFSIGNALED(end.wait_status));
}

std::string line_of(const RankEnd& end, bool first) {
  std::string line = "rank " + std::to_string(end.rank) + " on " + end.host;
  if (end.pid > 0) line += " (pid " + std::to_string(end.pid) + ")";
  if (!end.error.empty()) return line + " could not start: " + end.error;
  if (end.ended_by_kolorun)
    line += " ended by kolorun: ";
  else
    line += first ? " failed first: " : " failed too: ";
  line += describe_status(end.wait_status);
  const bool killed = WIFSIGNALED(end.wait_status) && WTERMSIG(end.wait_status) == SIGKILL;
  if (first && killed && !end.ended_by_kolorun) {
    line += "; out of memory?";
  }
  return line;
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

Verdict judge(std::vector<RankEnd> ends) {
  std::erase_if(ends, [](const RankEnd& end) {
    return exit_code_of(end.wait_status) == 0 && !end.ended_by_kolorun;
  });
  std::stable_sort(ends.begin(), ends.end(),
                   [](const RankEnd& a, const RankEnd& b) { return order(a) < order(b); });
  Verdict verdict;
  const auto failed = std::find_if(ends.begin(), ends.end(), [](const RankEnd& end) {
    return exit_code_of(end.wait_status) != 0;
  });
  if (failed == ends.end()) return verdict;
  verdict.exit_code = exit_code_of(failed->wait_status);
  for (const RankEnd& end : ends) {
    if (verdict.lines.size() == kMostLines) {
      const std::size_t more = ends.size() - kMostLines;
      verdict.lines.push_back("and " + std::to_string(more) +
                              (more == 1 ? " more rank" : " more ranks"));
      break;
    }
    verdict.lines.push_back(line_of(end, &end == &*failed));
  }
  return verdict;
}

}  // namespace kolo::internal
