#include "bench/common/launch.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "bench/common/text.h"

extern char** environ;

namespace kolo::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
namespace fs = std::filesystem;

constexpr milliseconds kGrace{3000};       // between asking a job to end and killing it
constexpr std::size_t kShownBytes = 2000;  // of a failed job's output

pid_t start(Command command, const fs::path& log) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) die("cannot start " + command[0] + ": " + std::strerror(error));
  return pid;
}

std::string outcome_of(int status) {
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return "ended with code " + std::to_string(WEXITSTATUS(status));
}

// The processes of one job; at the end those that are left are asked to go, then killed.
class Job {
 public:
  Job(const std::vector<Command>& commands, const fs::path& log) {
    for (const Command& command : commands) running_.push_back(start(command, log));
  }
  ~Job() { end(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Empty if all ended well within the limit; otherwise what went wrong.
  std::string wait(milliseconds limit) {
    const Clock::time_point deadline = Clock::now() + limit;
    std::string failure;
    while (!running_.empty() && failure.empty() && Clock::now() < deadline) {
      reap(failure);
      std::this_thread::sleep_for(milliseconds(2));
    }
    if (failure.empty() && !running_.empty()) {
      failure = "had not ended after " + std::to_string(limit.count()) + " ms";
    }
    return failure;
  }

 private:
  void end() {
    for (const int signal : {SIGTERM, SIGKILL}) {
      for (const pid_t pid : running_) ::kill(pid, signal);
      const Clock::time_point deadline = Clock::now() + kGrace;
      std::string ignored;
      while (!running_.empty() && Clock::now() < deadline) {
        reap(ignored);
        std::this_thread::sleep_for(milliseconds(2));
      }
    }
  }

  void reap(std::string& failure) {
    std::erase_if(running_, [&](pid_t pid) {
      int status = 0;
      if (::waitpid(pid, &status, WNOHANG) != pid) return false;
      if (status != 0 && failure.empty()) failure = outcome_of(status);
      return true;
    });
  }

  std::vector<pid_t> running_;
};

std::string end_of(const fs::path& log) {
  std::ifstream file(log);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  return all.size() <= kShownBytes ? all : "...\n" + all.substr(all.size() - kShownBytes);
}

}  // namespace

ScratchFolder::ScratchFolder(const std::string& program) {
  std::string pattern = fs::temp_directory_path() / (program + ".XXXXXX");
  if (::mkdtemp(pattern.data()) == nullptr) {
    die("cannot make a folder like " + pattern + ": " + std::strerror(errno));
  }
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path own_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

bool is_program(const fs::path& path) { return ::access(path.c_str(), X_OK) == 0; }

std::string find_mpiexec() {
  for (const char* folder : {"/usr/bin", "/usr/local/bin"}) {
    const fs::path path = fs::path(folder) / "mpiexec.hydra";
    if (is_program(path)) return path;
  }
  return {};
}

std::string run_to_end(const std::vector<Command>& commands, const fs::path& log,
                       milliseconds limit) {
  std::string failure;
  {
    Job job(commands, log);
    failure = job.wait(limit);
  }
  return failure.empty() ? failure : failure + ". Its output:\n" + end_of(log);
}

std::vector<nlohmann::json> read_json_lines(const fs::path& path) {
  std::vector<nlohmann::json> objects;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    objects.push_back(nlohmann::json::parse(line));
  }
  return objects;
}

}  // namespace kolo::bench
