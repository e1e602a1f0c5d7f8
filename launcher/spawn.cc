#include "launcher/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <sstream>

extern char** environ;  // NOLINT: set in the child, for execvp

namespace kolo::internal {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

struct ChildError {
  int error_number;
  bool in_directory;
};

[[noreturn]] void fail(int report, bool in_directory) {
  const ChildError error{errno, in_directory};
  if (::write(report, &error, sizeof error) < 0) ::_exit(126);
  ::_exit(127);
}

void reset_signals() {
  struct sigaction fresh {};
  fresh.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &fresh, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The limit that this process began with.
const rlimit& given_descriptor_limit() {
  static const rlimit given = [] {
    rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit;
  }();
  return given;
}

// Only calls that are safe after a fork from a process with threads.
[[noreturn]] void run_child(const SpawnRequest& request, char* const* arguments, char** environment,
                            const rlimit& descriptors, pid_t parent, int null_fd, int report) {
  ::setpgid(0, 0);
  reset_signals();
  if (request.dies_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it had died before the line above
  }
  const int wanted[3] = {request.in, request.out, request.err};
  for (int target = 0; target < 3; ++target) {
    // Our own descriptors are all above 2, so no dup2 overwrites a source that is still needed.
    if (::dup2(wanted[target] < 0 ? null_fd : wanted[target], target) < 0) fail(report, false);
  }
  if (request.kept >= 0 && ::fcntl(request.kept, F_SETFD, 0) != 0) fail(report, false);
  if (!request.directory.empty() && ::chdir(request.directory.c_str()) != 0) fail(report, true);
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  environ = environment;
  ::execvp(arguments[0], arguments);
  fail(report, false);
}

// The process group and state of /proc/<pid>/stat, and its flags.
struct Stat {
  char state = '?';
  pid_t group = 0;
  unsigned long flags = 0;
  long threads = 0;
  // A leader that has left its threads behind looks like a zombie, but its process lives.
  [[nodiscard]] bool is_alive() const { return (state != 'Z' && state != 'X') || threads > 1; }
};

bool read_stat(const std::string& path, Stat& stat) {
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text)) return false;
  const std::size_t after_name = text.rfind(')');  // the name itself may hold anything
  if (after_name == std::string::npos) return false;
  std::istringstream rest(text.substr(after_name + 1));
  long parent = 0;
  long group = 0;
  long session = 0;
  long terminal = 0;
  long terminal_group = 0;
  rest >> stat.state >> parent >> group >> session >> terminal >> terminal_group >> stat.flags;
  constexpr int kFieldsBetween = 10;  // fault counters, times, priority, nice
  long skipped = 0;
  for (int i = 0; i < kFieldsBetween; ++i) rest >> skipped;
  rest >> stat.threads;
  stat.group = static_cast<pid_t>(group);
  return !rest.fail();
}

// Whether SIGKILL has been sent and not been taken yet.
bool is_kill_pending(const std::string& status_path) {
  std::ifstream file(status_path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("SigPnd:") && !line.starts_with("ShdPnd:")) continue;
    unsigned long long pending = 0;
    std::istringstream(line.substr(7)) >> std::hex >> pending;
    if ((pending >> (SIGKILL - 1) & 1) != 0) return true;
  }
  return false;
}

std::vector<pid_t> numbered_entries(const std::string& folder) {
  std::vector<pid_t> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), &::closedir);
  if (!directory) return numbers;
  while (const dirent* entry = ::readdir(directory.get())) {
    const char* name = entry->d_name;
    pid_t number = 0;
    const auto [end, error] = std::from_chars(name, name + strlen(name), number);
    if (error == std::errc() && *end == '\0') numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

Result<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    return resource_error(std::string("cannot make a pipe: ") + strerror(errno) +
                          "; raise the limit of open files (ulimit -n)");
  }
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

void raise_descriptor_limit() {
  constexpr rlim_t kEnough = 65'536;
  rlimit limit = given_descriptor_limit();
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kEnough));
  ::setrlimit(RLIMIT_NOFILE, &limit);  // if not, what runs out says so
}

Spawned spawn(const SpawnRequest& request) {
  auto report = make_pipe();
  const UniqueFd null_fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!report || !null_fd.is_open()) return {0, EMFILE, false};
  const std::vector<char*> arguments = pointers(request.arguments);
  std::vector<char*> environment = pointers(request.environment);
  const rlimit& descriptors = given_descriptor_limit();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return {0, errno, false};
  if (pid == 0) {
    run_child(request, arguments.data(), environment.data(), descriptors, parent, null_fd.get(),
              report->write.get());
  }
  ::setpgid(pid, pid);  // also here: whoever signals the group next must find it
  report->write.reset();
  ChildError error{};
  ssize_t got = 0;
  do {
    got = ::read(report->read.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return {pid, 0, false};  // end of file: exec has closed it
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return {0, error.error_number, error.in_directory};
}

std::set<pid_t> living_groups(const std::set<pid_t>& groups) {
  std::set<pid_t> living;
  if (groups.empty()) return living;
  for (const pid_t pid : numbered_entries("/proc")) {
    Stat stat;
    if (!read_stat("/proc/" + std::to_string(pid) + "/stat", stat)) continue;
    if (stat.is_alive() && groups.contains(stat.group)) living.insert(stat.group);
  }
  return living;
}

bool is_ending(pid_t pid) {
  constexpr unsigned long kExiting = 0x4 | 0x400;  // PF_EXITING, PF_SIGNALED: stable since long
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  bool any = false;
  for (const pid_t thread : numbered_entries(folder)) {
    Stat stat;
    const std::string thread_folder = folder + "/" + std::to_string(thread);
    // In this order: a signal that is no longer pending shows in the flags.
    const bool pending = is_kill_pending(thread_folder + "/status");
    if (!read_stat(thread_folder + "/stat", stat)) continue;
    const bool ends =
        pending || stat.state == 'Z' || stat.state == 'X' || (stat.flags & kExiting) != 0;
    if (!ends) return false;
    any = true;
  }
  return any;
}

std::vector<pid_t> list_children() {
  std::vector<pid_t> children;
  for (const pid_t thread : numbered_entries("/proc/self/task")) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  return children;
}

}  // namespace kolo::internal
