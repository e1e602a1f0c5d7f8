#include "tests/multiproc/launcher/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

extern char** environ;  // NOLINT

namespace kolo::test {
namespace {

std::vector<std::string> make_environment(const RunOptions& options) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!options.environment.contains(text.substr(0, text.find('=')))) entries.push_back(text);
  }
  for (const auto& [name, value] : options.environment) entries.push_back(name + "=" + value);
  entries.insert(entries.end(), options.raw_environment.begin(), options.raw_environment.end());
  return entries;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

// State and process group of /proc/<pid>/stat.
bool read_stat(pid_t pid, char& state, pid_t& group) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  std::istringstream rest(text.substr(text.rfind(')') + 1));
  long parent = 0;
  return static_cast<bool>(rest >> state >> parent >> group);
}

// SIGKILL is on its way to it: it does nothing more, and ends at its next turn.
bool is_doomed(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("SigPnd:") && !line.starts_with("ShdPnd:")) continue;
    if ((std::stoull(line.substr(7), nullptr, 16) >> (SIGKILL - 1) & 1) != 0) return true;
  }
  return false;
}

// All there are, zombies among them.
std::vector<pid_t> all_processes() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && *end == '\0') found.push_back(pid);
  }
  return found;
}

}  // namespace

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

Child::Child(const std::vector<std::string>& arguments, const RunOptions& options)
    : limit_seconds_(options.timeout_seconds), started_(now_seconds()) {
  const std::vector<std::string> entries = make_environment(options);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(entries);
  int out[2];
  int err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe2");
  }
  pid_ = ::fork();
  if (pid_ == 0) {
    ::setpgid(0, 0);
    // Ignored where the tests run in the background; a shell could not trap it then.
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGQUIT, SIG_DFL);
    const int null_fd = ::open("/dev/null", O_RDONLY);
    ::dup2(null_fd, 0);
    if (options.close_stdin) ::close(0);
    ::dup2(out[1], 1);
    ::dup2(options.merge ? out[1] : err[1], 2);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ::setpgid(pid_, pid_);
  ::close(out[1]);
  ::close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

Child::~Child() {
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (out_ >= 0) ::close(out_);
  if (err_ >= 0) ::close(err_);
}

void Child::signal(int number) const { ::kill(pid_, number); }

Outcome Child::wait() {
  Outcome outcome;
  pollfd fds[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
  std::string* texts[2] = {&outcome.out, &outcome.err};
  std::vector<char> buffer(std::size_t{1} << 16);
  bool over = false;
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    const double left = started_ + limit_seconds_ - now_seconds();
    if (left <= 0) {
      over = true;
      break;
    }
    ::poll(fds, 2, static_cast<int>(left * 1000) + 1);
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      const ssize_t got = ::read(fds[i].fd, buffer.data(), buffer.size());
      if (got > 0)
        texts[i]->append(buffer.data(), static_cast<std::size_t>(got));
      else
        fds[i].fd = -1;
    }
  }
  int status = 0;
  while (!over && ::waitpid(pid_, &status, WNOHANG) == 0) {
    over = now_seconds() > started_ + limit_seconds_;
    sleep_seconds(0.001);
  }
  outcome.seconds = now_seconds() - started_;
  if (over) return outcome;  // the destructor kills it
  pid_ = -1;
  outcome.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return outcome;
}

Outcome run(const std::vector<std::string>& arguments, const RunOptions& options) {
  Child child(arguments, options);
  return child.wait();
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "kolo-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::script(const std::string& name, const std::string& text) const {
  const std::string path = path_ + "/" + name;
  std::ofstream(path) << "#!/bin/sh\n" << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool wait_for_file(const std::string& path, double limit_seconds) {
  const double end = now_seconds() + limit_seconds;
  while (read_file(path).empty()) {
    if (now_seconds() > end) return false;
    sleep_seconds(0.005);
  }
  return true;
}

bool is_alive(pid_t pid) {
  char state = 'X';
  pid_t group = 0;
  return read_stat(pid, state, group) && state != 'Z' && state != 'X';
}

std::vector<pid_t> group_members(pid_t group) {
  std::vector<pid_t> members;
  for (const pid_t pid : all_processes()) {
    char state = 'X';
    pid_t its_group = 0;
    if (read_stat(pid, state, its_group) && its_group == group && state != 'Z' && state != 'X') {
      members.push_back(pid);
    }
  }
  return members;
}

std::vector<pid_t> holders_of(const std::string& entry) {
  std::vector<pid_t> holders;
  const std::string wanted = '\0' + entry + '\0';
  for (const pid_t pid : all_processes()) {
    const std::string environment =
        '\0' + read_file("/proc/" + std::to_string(pid) + "/environ");  // a zombie's is empty
    if (environment.find(wanted) != std::string::npos) holders.push_back(pid);
  }
  return holders;
}

namespace {

// Until find() finds nobody; who is doomed by then may wait for a turn on a busy machine.
template <typename Find>
bool wait_until_none(Find find, double limit_seconds) {
  constexpr double kTurnSeconds = 10;
  const double start = now_seconds();
  while (true) {
    const std::vector<pid_t> left = find();
    if (left.empty()) return true;
    const double seconds = now_seconds() - start;
    if (seconds > limit_seconds && !std::ranges::all_of(left, is_doomed)) return false;
    if (seconds > limit_seconds + kTurnSeconds) return false;
    sleep_seconds(0.01);
  }
}

}  // namespace

bool wait_until_gone(const std::vector<pid_t>& groups, double limit_seconds) {
  return wait_until_none(
      [&] {
        std::vector<pid_t> left;
        for (const pid_t group : groups) {
          for (const pid_t pid : group_members(group)) left.push_back(pid);
        }
        return left;
      },
      limit_seconds);
}

bool wait_until_nobody_has(const std::string& entry, double limit_seconds) {
  return wait_until_none([&] { return holders_of(entry); }, limit_seconds);
}

bool long_tests() {
  const char* wish = std::getenv("KOLO_TEST_LONG");
  return wish != nullptr && std::strcmp(wish, "1") == 0;
}

int repetitions(int full) { return long_tests() ? full : std::max(20, full / 10); }

}  // namespace kolo::test
