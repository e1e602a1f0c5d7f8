#include "launcher/rank_group.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <set>

#include "launcher/verdict.h"

namespace kolo::internal {
namespace {

// The status as wait() would give it, but the process stays a zombie.
std::optional<int> peek_status(pid_t pid) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  if (info.si_code == CLD_EXITED) return (info.si_status & 0xff) << 8;
  return info.si_status | (info.si_code == CLD_DUMPED ? 0x80 : 0);
}

}  // namespace

// A killed process gives back its memory before wait() sees it, and by then others may have ended
// because of it. Whoever is half gone when another's failure is seen was earlier.
void RankGroup::note_ending(Nanos now) {
  for (Member& member : members_) {
    if (member.running && !member.ending_since && is_ending(member.pid)) {
      member.ending_since = now;
    }
  }
}

std::vector<RankGroup::End> RankGroup::look(Nanos now) {
  std::vector<End> ends;
  for (Member& member : members_) {
    if (!member.running) continue;
    const auto status = peek_status(member.pid);
    if (!status) continue;
    member.running = false;
    const bool earlier = WIFSIGNALED(*status) && member.ending_since;
    ends.push_back(
        {member.rank, *status, earlier ? *member.ending_since : now, member.told_to_end});
  }
  const bool failed = std::any_of(ends.begin(), ends.end(), [](const End& end) {
    return exit_code_of(end.wait_status) != 0 && !end.told_to_end;
  });
  if (failed) note_ending(now);
  return ends;
}

void RankGroup::signal(int number, bool ends_job) {
  for (Member& member : members_) {
    ::kill(-member.pid, number);
    // Who was dying before this is not ended by it.
    if (ends_job && member.running && !member.ending_since) member.told_to_end = true;
  }
  if (number == SIGTERM || number == SIGINT || number == SIGHUP) {
    for (const Member& member : members_) ::kill(-member.pid, SIGCONT);  // the stopped hear it too
  }
}

bool RankGroup::any_running() const {
  return std::any_of(members_.begin(), members_.end(), [](const Member& m) { return m.running; });
}

bool RankGroup::any_left() const {
  std::set<pid_t> groups;
  for (const Member& member : members_) groups.insert(member.pid);
  return !living_groups(groups).empty();
}

}  // namespace kolo::internal
