#include "tests/unit/fakegpu/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <utility>

extern char** environ;  // NOLINT: POSIX's

namespace fakegpu {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Child::Child(const std::string& program, const std::vector<std::string>& arguments,
             const std::vector<std::string>& variables) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  pipe_ = ends[0];
  std::vector<std::string> argument_texts = {program};
  argument_texts.insert(argument_texts.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment = variables;  // the first of a name is the one that counts
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment.emplace_back(*variable);
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  if (posix_spawn(&process_, program.c_str(), &actions, nullptr, pointers(argument_texts).data(),
                  pointers(environment).data()) != 0) {
    process_ = -1;
  }
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
}

Child::~Child() {
  if (process_ > 0) {
    kill();
    waitpid(process_, nullptr, 0);
  }
  if (pipe_ >= 0) close(pipe_);
}

void Child::kill() {
  if (process_ > 0) ::kill(process_, SIGKILL);
}
void Child::freeze() {
  if (process_ > 0) ::kill(process_, SIGSTOP);
}
void Child::thaw() {
  if (process_ > 0) ::kill(process_, SIGCONT);
}

// False: there is nothing more.
bool Child::read_some(int limit_ms) {
  pollfd watched = {pipe_, POLLIN, 0};
  poll(&watched, 1, limit_ms);
  if (watched.revents == 0) return true;
  char buffer[4096];
  const ssize_t count = read(pipe_, buffer, sizeof buffer);
  if (count <= 0) return false;
  output_.append(buffer, static_cast<std::size_t>(count));
  return true;
}

bool Child::await_line(const std::string& line) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (output_.find(line + "\n") == std::string::npos) {
    if (std::chrono::steady_clock::now() > end || !read_some(100)) return false;
  }
  return true;
}

Ended Child::wait() {
  Ended ended;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (read_some(1000)) {
    if (std::chrono::steady_clock::now() > end) {
      kill();
      break;
    }
  }
  int status = 0;
  if (process_ > 0 && waitpid(process_, &status, 0) == process_) {
    if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  }
  process_ = -1;
  ended.output = std::move(output_);
  return ended;
}

}  // namespace fakegpu
