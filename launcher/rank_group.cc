#include "launcher/rank_group.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

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

RankGroup::RankGroup() : watch_(::epoll_create1(EPOLL_CLOEXEC)) {}

void RankGroup::add(int rank, pid_t pid) {
  Member member;
  member.rank = rank;
  member.pid = pid;
  member.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;  // told once, so that the queue stays one
  event.data.u64 = members_.size();
  if (member.pidfd.is_open()) {
    ::epoll_ctl(watch_.get(), EPOLL_CTL_ADD, member.pidfd.get(), &event);
  }
  members_.push_back(std::move(member));
}

// All members, those first whose end the kernel has queued.
std::vector<std::size_t> RankGroup::in_order_of_death() {
  std::vector<std::size_t> order;
  std::array<epoll_event, 64> events{};
  int count = 0;
  while ((count = ::epoll_wait(watch_.get(), events.data(), static_cast<int>(events.size()), 0)) >
         0) {
    for (int i = 0; i < count; ++i) {
      order.push_back(static_cast<std::size_t>(events[static_cast<std::size_t>(i)].data.u64));
    }
  }
  for (std::size_t i = 0; i < members_.size(); ++i) order.push_back(i);
  return order;
}

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
  for (const std::size_t index : in_order_of_death()) {
    Member& member = members_[index];
    if (!member.running) continue;
    const auto status = peek_status(member.pid);
    if (!status) continue;
    member.running = false;
    member.pidfd.reset();
    ends.push_back({member.rank, *status, member.ending_since.value_or(now), member.told_to_end});
  }
  const bool failed = std::any_of(ends.begin(), ends.end(), [](const End& end) {
    return exit_code_of(end.wait_status) != 0 && !end.told_to_end;
  });
  if (failed) note_ending(now);
  return ends;
}

void RankGroup::signal(int number, bool ends_job, Nanos now) {
  if (ends_job) note_ending(now);
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
