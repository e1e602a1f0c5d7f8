#include "bench/peers/job.h"

#include <filesystem>

#include "bench/common/launch.h"
#include "bench/common/text.h"

namespace kolo::bench {
namespace {

using std::chrono::milliseconds;
namespace fs = std::filesystem;

constexpr milliseconds kStartAndEnd{20'000};  // of a job, at most
constexpr milliseconds kSlowestSize{10'000};  // besides its budget

std::string worker_of(const std::string& peer) { return own_folder() / ("bench_worker_" + peer); }

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
    commands.push_back({own_folder() / "kolorun", "-np", ranks, "-x", "KOLO_TRANSPORT=tcp"});
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
    for (auto& result : read_json_lines(file.path())) results.push_back(std::move(result));
  }
  return results;
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
  std::string failure;
  {
    const ScratchFolder folder("allreduce_peers");
    failure = run_to_end(commands_of(peer, settings, folder.path()), folder.path() / "output",
                         limit_of(settings));
    if (failure.empty()) results = results_in(folder.path());
  }
  if (!failure.empty()) die("a job of " + peer + " " + failure);
  if (results.empty()) die("a job of " + peer + " left no results");
  return results;
}

}  // namespace kolo::bench
