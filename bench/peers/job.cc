#include "bench/peers/job.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

extern char** environ;

namespace kolo::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
namespace fs = std::filesystem;

constexpr milliseconds kStartAndEnd{20'000};  // of a job, at most
constexpr milliseconds kSlowestSize{10'000};  // besides its budget
constexpr milliseconds kGrace{3000};          // between asking a job to end and killing it
constexpr std::size_t kShownBytes = 2000;     // of a failed job's output

using Command = std::vector<std::string>;

// A folder of our own that is gone with its owner.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = fs::temp_directory_path() / "allreduce_peers.XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
      die("cannot make a folder like " + pattern + ": " + std::strerror(errno));
    }
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

fs::path own_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

std::string worker_of(const std::string& peer) { return own_folder() / ("bench_worker_" + peer); }

bool is_program(const fs::path& path) { return ::access(path.c_str(), X_OK) == 0; }

// In the folders where Debian has it.
std::string find_mpiexec() {
  for (const char* folder : {"/usr/bin", "/usr/local/bin"}) {
    const fs::path path = fs::path(folder) / "mpiexec.hydra";
    if (is_program(path)) return path;
  }
  return {};
}

std::string mode_name(Work::Mode mode) {
  switch (mode) {
    case Work::Mode::kThroughput: return "throughput";
    case Work::Mode::kLatency: return "latency";
    case Work::Mode::kIdle: return "idle";
  }
  return {};
}

Command worker_command(const std::string& peer, const Settings& settings, const fs::path& folder) {
  std::string sizes;
  for (const std::size_t bytes : settings.sizes) {
    sizes += (sizes.empty() ? "" : ",") + std::to_string(bytes);
  }
  return {worker_of(peer),
          "--mode",
          mode_name(settings.mode),
          "--out",
          folder / "results",
          "--sizes",
          sizes,
          "--budget-ms",
          std::to_string(settings.budget.count()),
          "--idle-ms",
          std::to_string(settings.idle_time.count())};
}

// The programs to start for one job: a launcher, or the ranks themselves.
std::vector<Command> commands_of(const std::string& peer, const Settings& settings,
                                 const fs::path& folder) {
  const Command worker = worker_command(peer, settings, folder);
  const std::string ranks = std::to_string(settings.ranks);
  std::vector<Command> commands;
  if (peer == "kolo") {
    commands.push_back({own_folder() / "kolorun", "-np", ranks});
  } else if (peer == "mpich") {
    commands.push_back(
        {find_mpiexec(), "-genv", "UCX_TLS", "tcp", "-genv", "UCX_NET_DEVICES", "lo", "-n", ranks});
  } else {
    for (int rank = 0; rank < settings.ranks; ++rank) commands.emplace_back();
  }
  for (std::size_t i = 0; i < commands.size(); ++i) {
    commands[i].insert(commands[i].end(), worker.begin(), worker.end());
    if (peer != "gloo") continue;
    const Command own = {"--rank", std::to_string(i), "--size", ranks, "--meeting", folder};
    commands[i].insert(commands[i].end(), own.begin(), own.end());
  }
  return commands;
}

// Starts a program with its output in `log`; in our process group, so that Ctrl-C reaches it too.
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

// The processes of one job. None outlives it: at the end those that are left are asked to go, then
// killed.
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

 private:
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

milliseconds limit_of(const Settings& settings) {
  switch (settings.mode) {
    case Work::Mode::kThroughput: {
      const auto sizes = static_cast<int>(settings.sizes.size());
      return kStartAndEnd + sizes * (settings.budget + kSlowestSize);
    }
    case Work::Mode::kLatency: return kStartAndEnd + settings.budget + kSlowestSize;
    case Work::Mode::kIdle: break;
  }
  return kStartAndEnd + settings.idle_time;
}

std::vector<nlohmann::json> results_in(const fs::path& folder) {
  std::vector<nlohmann::json> results;
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().stem() != "results") continue;
    std::ifstream lines(file.path());
    for (std::string line; std::getline(lines, line);) {
      results.push_back(nlohmann::json::parse(line));
    }
  }
  return results;
}

// What went wrong, with the end of the job's output; empty: nothing.
std::string try_job(const std::string& peer, const Settings& settings,
                    std::vector<nlohmann::json>& results) {
  const ScratchFolder folder;
  const fs::path log = folder.path() / "output";
  std::string failure;
  {
    Job job(commands_of(peer, settings, folder.path()), log);
    failure = job.wait(limit_of(settings));
  }
  if (failure.empty()) {
    results = results_in(folder.path());
    if (results.empty()) failure = "left no results";
  }
  return failure.empty() ? failure : failure + ". Its output:\n" + end_of(log);
}

}  // namespace

std::string missing(const std::string& peer) {
  if (!is_program(worker_of(peer))) {
    return "not built; install the peers (scripts/setup.sh bench) and configure again";
  }
  if (peer == "mpich" && find_mpiexec().empty()) return "mpiexec.hydra is missing; install mpich";
  if (peer == "kolo" && !is_program(own_folder() / "kolorun")) {
    return "kolorun is missing beside this program; build it too";
  }
  return {};
}

std::vector<nlohmann::json> run_job(const std::string& peer, const Settings& settings) {
  std::vector<nlohmann::json> results;
  const std::string failure = try_job(peer, settings, results);
  if (!failure.empty()) die("a job of " + peer + " " + failure);
  return results;
}

}  // namespace kolo::bench
