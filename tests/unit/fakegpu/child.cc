#include "tests/unit/fakegpu/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

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

Ended Child::wait() {
  Ended ended;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  char buffer[4096];
  while (true) {
    pollfd watched = {pipe_, POLLIN, 0};
    poll(&watched, 1, 1000);
    if (watched.revents != 0) {
      const ssize_t count = read(pipe_, buffer, sizeof buffer);
      if (count <= 0) break;
      ended.output.append(buffer, static_cast<std::size_t>(count));
    }
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
  return ended;
}

}  // namespace fakegpu
