#include "launcher/kolorun.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/options.h"
#include "launcher/agent.h"
#include "launcher/agent_guard.h"
#include "launcher/check_build.h"
#include "launcher/job.h"
#include "launcher/options.h"
#include "launcher/pmi_donors.h"
#include "launcher/program.h"
#include "launcher/remote_command.h"
#include "launcher/verdict.h"
#include "transport/rendezvous/codec.h"

namespace kolo::internal {
namespace {

static_assert(kMaxRanks == kMaxJobSize);
constexpr std::size_t kMaxHostfileBytes = std::size_t{16} << 20;

int complain(const std::string& text, int exit_code) {
  const std::string line = "kolorun: " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  return exit_code;
}

int print(const std::string& text) {
  const bool ok =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return ok ? 0 : kExitOwnFailure;
}

// Empty when the kernel has no random bytes to give.
std::string random_hex(std::size_t bytes) {
  std::array<unsigned char, 64> raw{};
  if (::getrandom(raw.data(), bytes, 0) != static_cast<ssize_t>(bytes)) return "";
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) {
    text += "0123456789abcdef"[raw[i] >> 4];
    text += "0123456789abcdef"[raw[i] & 15];
  }
  return text;
}

Result<std::vector<Host>> read_hosts(const LaunchOptions& options) {
  if (!options.hosts.empty()) {
    auto hosts = parse_host_list(options.hosts);
    if (hosts) return hosts;
    return invalid_argument("-H: " + hosts.status().text());
  }
  if (options.hostfile.empty()) return std::vector<Host>{};
  std::ifstream file(options.hostfile, std::ios::binary);
  std::string text(kMaxHostfileBytes, '\0');
  errno = 0;
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() || file.bad()) {
    return invalid_argument("cannot read the hostfile '" + options.hostfile + "'" +
                            (errno == 0 ? "" : std::string(": ") + strerror(errno)));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_hostfile(text, options.hostfile);
}

std::string current_directory() {
  std::array<char, PATH_MAX> path{};
  return ::getcwd(path.data(), path.size()) == nullptr ? "" : path.data();
}

std::string own_path() {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  return length <= 0 ? "kolorun" : path.data();
}

std::string own_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// What stands in the way of ranks on this machine, seen before anything is started.
ProgramCheck check_local_program(const JobPlan& plan) {
  const auto& hosts = plan.placement.hosts;
  const bool any_here = std::any_of(hosts.begin(), hosts.end(), [&](const auto& here) {
    return road_to(here.host, plan.options, plan.own_name) == Road::kFork;
  });
  if (!any_here) return {};
  if (!plan.directory.empty() && ::access(plan.directory.c_str(), X_OK) != 0) {
    return {kExitUsage, "--wdir '" + plan.directory + "': " + strerror(errno)};
  }
  const SharedEnvironment shared = shared_environment(plan.environment, plan.options, false);
  const Environment environment = compose(plan.environment, {&shared.entries});
  const auto path = find_variable(environment, "PATH");
  return check_program(plan.options.program[0], std::string(path.value_or("/bin:/usr/bin")),
                       plan.directory);
}

// MPI as a road: the ranks get their places in its world from mpiexec, here.
std::string check_mpi(const JobPlan& plan) {
  const SharedEnvironment shared = shared_environment(plan.environment, plan.options, false);
  const Environment environment = compose(plan.environment, {&shared.entries});
  if (!wants_mpi(environment)) return "";
  const auto& hosts = plan.placement.hosts;
  if (hosts.size() > 1 || road_to(hosts[0].host, plan.options, plan.own_name) != Road::kFork) {
    return "--transport mpi works on this machine alone; for other hosts start the program with "
           "MPICH's own launcher: KOLO_TRANSPORT=mpi mpiexec.hydra -hosts a,b -n N program";
  }
  const auto path = find_variable(environment, "PATH");
  if (check_program(kMpiexec, std::string(path.value_or("/bin:/usr/bin")), "").exit_code == 0) {
    return "";
  }
  return std::string("--transport mpi needs ") + kMpiexec +
         ", which is not on PATH; install the Debian package mpich";
}

// The option's, or what the ranks will find in their environment.
Nanos start_timeout_of(const LaunchOptions& options, const Environment& environment) {
  if (options.start_timeout) return *options.start_timeout;
  const SharedEnvironment shared = shared_environment(environment, options, false);
  const Environment composed = compose(environment, {&shared.entries});
  const auto text = find_variable(composed, "KOLO_START_TIMEOUT_MS");
  Config config;
  // The ranks will complain of what cannot be taken.
  if (text) static_cast<void>(config.set("start_timeout_ms", *text).is_ok());
  return std::chrono::milliseconds(config.integer("start_timeout_ms"));
}

int launch(LaunchOptions options, Environment environment) {
  for (const std::string& note : options.notes) complain(note, 0);
  auto hosts = read_hosts(options);
  if (!hosts) return complain(hosts.status().text(), kExitUsage);
  PlacementRequest request;
  request.rank_count = options.rank_count;
  request.all_slots = options.all_slots;
  request.ranks_per_host = options.ranks_per_host;
  request.local_cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  auto placement = place_ranks(*std::move(hosts), request);
  if (!placement) return complain(placement.status().text(), kExitUsage);

  JobPlan plan;
  plan.placement = *std::move(placement);
  plan.own_path = own_path();
  plan.own_name = own_name();
  plan.directory =
      options.working_directory.empty() ? current_directory() : options.working_directory;
  plan.facts = {random_hex(8), Secret(random_hex(32))};
  if (plan.facts.secret.empty())
    return complain("no random bytes from the kernel", kExitOwnFailure);
  plan.colour = ::isatty(1) == 1 && !find_variable(environment, "NO_COLOR");
  plan.start_timeout = start_timeout_of(options, environment);
  plan.options = std::move(options);
  plan.environment = std::move(environment);

  const ProgramCheck program = check_local_program(plan);
  if (program.exit_code != 0) return complain(program.error, program.exit_code);
  if (const std::string obstacle = check_mpi(plan); !obstacle.empty()) {
    return complain(obstacle, kExitUsage);
  }
  for (const std::string& name : shared_environment(plan.environment, plan.options, false).unset) {
    complain("-x " + name + ": not set here, so the ranks do not get it", 0);
  }
  return run_job(std::move(plan));
}

}  // namespace

int kolorun(std::span<const std::string> arguments, Environment environment) {
  ::prctl(PR_SET_DUMPABLE, 0);  // the job's secret must not get into a core
  auto options = parse_command_line(arguments);
  if (!options) return complain(options.status().text(), kExitUsage);
  switch (options->action) {
    case Action::kHelp: return print(help_text());
    case Action::kVersion: return print("kolorun " KOLO_VERSION "\n");
    case Action::kCheckBuild: return print(check_build_text());
    case Action::kAgent: return run_guarded([&] { return run_agent(std::move(environment)); });
    case Action::kPmiDonor: return run_pmi_donor(options->donors_address, environment);
    case Action::kRun: break;
  }
  return launch(*std::move(options), std::move(environment));
}

}  // namespace kolo::internal
