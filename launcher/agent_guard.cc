#include "launcher/agent_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "launcher/spawn.h"

namespace kolo::internal {
namespace {

// Waits for the agent, and reaps what its ranks have left to us meanwhile. The numbers of the
// groups stay taken: their leaders are the agent's to reap.
int wait_for_agent(pid_t agent) {
  int status = 0;
  while (true) {
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended == agent) return status;
    if (ended < 0 && errno != EINTR) return 0;
  }
}

// Kills every group that holds a child of ours; a daemon with a session of its own is no part of
// the job. Whether there was one.
bool kill_groups() {
  bool any = false;
  for (const pid_t child : list_children()) {
    const pid_t group = ::getpgid(child);
    if (group <= 0 || group == ::getpgrp() || ::getsid(child) != ::getsid(0)) continue;
    ::kill(-group, SIGKILL);
    any = true;
  }
  return any;
}

// Again after each end: what a killed process has started is ours only then.
void end_what_is_left() {
  while (kill_groups()) {
    if (::waitpid(-1, nullptr, 0) < 0 && errno != EINTR) return;
  }
}

// The agent's pipes are to end with the agent.
void let_go_of_pipes() {
  const UniqueFd null_fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int fd = 0; fd < 3 && null_fd.is_open(); ++fd) ::dup2(null_fd.get(), fd);
}

}  // namespace

int run_guarded(const std::function<int()>& agent) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t guard = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return agent();  // as well as it goes without
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    return ::getppid() == guard ? agent() : 1;
  }
  let_go_of_pipes();
  const int status = wait_for_agent(pid);
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  end_what_is_left();
  ::signal(WTERMSIG(status), SIG_DFL);
  ::raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}

}  // namespace kolo::internal
