#include "tests/chaos/stage.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "tests/chaos/census.h"

namespace kolo::chaos {
namespace {

using test::RunOptions;

constexpr double kLimitSeconds = 25;
constexpr int kFirstPort = 20'000;

// Until `there` holds; false after 10 s.
template <typename Condition>
bool await(Condition&& there) {
  constexpr std::int64_t kLimitNs = 10'000'000'000;
  const std::int64_t end = monotonic_ns() + kLimitNs;
  while (!there()) {
    if (monotonic_ns() > end) return false;
    sleep_us(50);
  }
  return true;
}

bool await_moment(const Plan& plan, Board& board) {
  const Cell& victim = board.cells[static_cast<std::size_t>(plan.victim)];
  const auto is_over = [&] { return victim.phase >= Phase::kFailed; };
  const auto in_phase = [&](Phase phase) {
    return await([&] { return victim.phase == phase || is_over(); }) && victim.phase == phase;
  };
  switch (plan.moment) {
    case Moment::kInit: return in_phase(Phase::kInit);
    case Moment::kIdle: return in_phase(Phase::kIdle);
    case Moment::kNegotiate: return in_phase(Phase::kNegotiate);
    case Moment::kTransfer:
      return await([&] { return victim.steps >= 2 || is_over(); }) && !is_over();
    case Moment::kShutdown:
      if (!await([&] { return victim.steps >= 2 || is_over(); })) return false;
      board.finish = true;
      return in_phase(Phase::kShutdown);
  }
  return false;
}

bool breaks_wires(Fault fault) {
  return fault == Fault::kLink || fault == Fault::kDrop || fault == Fault::kLossy;
}

std::string address_of(int host) { return "10.77.0." + std::to_string(host + 1); }

// What a host lets in no more. Where it arrives: what is dropped where it is sent counts as a full
// queue, and not as lost.
std::string filter_of(const Plan& plan) {
  std::string which = "ip saddr ";
  if (plan.fault == Fault::kLossy) {
    which += address_of(0) + "/24 numgen random mod 100 < " + std::to_string(plan.loss_percent);
  } else {
    which += address_of(plan.host_of(plan.victim));
  }
  return "add chain inet chaos into { type filter hook input priority 0; policy accept; }; "
         "add rule inet chaos into " +
         which + " drop";
}

void must_run(const std::vector<std::string>& arguments) {
  const test::Outcome outcome = test::run(arguments);
  if (outcome.exit_code == 0) return;
  std::string text;
  for (const std::string& word : arguments) text += word + " ";
  throw std::runtime_error(text + ": " + outcome.err);
}

}  // namespace

Stage::Stage(int hosts) {
  if (hosts > 0) hosts_ = std::make_unique<test::Hosts>(hosts);
}

std::vector<std::string> Stage::enter(int host) const {
  if (hosts_ == nullptr) return {};
  return {test::Hosts::ip_path(), "netns", "exec", hosts_->name(host)};
}

std::vector<std::string> Stage::kolorun_arguments(const Plan& plan) const {
  std::vector<std::string> words;
  if (plan.hosts == 1) words = enter(0);
  words.insert(words.end(),
               {KOLO_KOLORUN, "-np", std::to_string(plan.size()), "--grace", "20", "--label=none",
                "--start-timeout", std::to_string(kStartTimeoutMs / 1000)});
  if (plan.hosts > 1) {
    const std::vector<int> ranks(plan.ranks_on.begin(), plan.ranks_on.begin() + plan.hosts);
    words.insert(words.end(), {"-H", hosts_->list(ranks), "--launcher-exec",
                               test::Hosts::ip_path() + " netns exec"});
  }
  return words;
}

RunOptions Stage::options_of(const Plan& plan, const std::string& trial) const {
  constexpr const char* kTransports[] = {"shm", "tcp", "auto"};
  RunOptions options;
  options.timeout_seconds = kLimitSeconds + static_cast<double>(plan.stop_ms) / 1000;
  options.environment = {
      {kTrialVariable, trial},
      {"KOLO_TRANSPORT", kTransports[static_cast<int>(plan.road)]},
      {"KOLO_PEER_TIMEOUT_MS", std::to_string(plan.peer_timeout_ms)},
      {"KOLO_START_TIMEOUT_MS", std::to_string(kStartTimeoutMs)},
  };
  if (plan.fault == Fault::kFail || plan.fault == Fault::kClock || plan.fault == Fault::kDie) {
    options.environment["LD_PRELOAD"] = KOLO_CHAOS_SHIM;
  }
  return options;
}

// What kolorun would tell a rank.
void Stage::add_identity(const Plan& plan, int rank, RunOptions& options) const {
  const int host = plan.host_of(rank);
  int first = 0;
  while (plan.host_of(first) != host) ++first;
  const auto address = [&](int of) {
    return hosts_ != nullptr && plan.hosts > 1 ? address_of(of) : "127.0.0.1";
  };
  const int port = kFirstPort + (::getpid() + trials_) % 10'000;
  auto& environment = options.environment;
  environment["KOLO_RANK"] = std::to_string(rank);
  environment["KOLO_SIZE"] = std::to_string(plan.size());
  environment["KOLO_LOCAL_RANK"] = std::to_string(rank - first);
  environment["KOLO_LOCAL_SIZE"] = std::to_string(plan.ranks_on[static_cast<std::size_t>(host)]);
  environment["KOLO_HOST_INDEX"] = std::to_string(host);
  environment["KOLO_HOST_COUNT"] = std::to_string(plan.hosts);
  environment["KOLO_HOST_NAME"] = "host" + std::to_string(host);
  environment["KOLO_RENDEZVOUS"] = address(0) + ":" + std::to_string(port);
  environment["KOLO_ADDRESSES"] = address(host);
  environment["KOLO_SECRET"] = "a secret of the tests alone";
  environment["KOLO_JOB"] = options.environment[kTrialVariable];
}

Stage::Job Stage::start(const Plan& plan, const std::string& board) {
  Job job;
  job.trial = std::to_string(::getpid()) + "." + std::to_string(++trials_);
  const auto begin = [&](std::vector<std::string> words, const RunOptions& options) {
    words.insert(words.end(), {KOLO_CHAOS_RANKS, board});
    job.processes.push_back(std::make_unique<test::Child>(words, options));
  };
  if (plan.by_kolorun) {
    std::vector<std::string> words = kolorun_arguments(plan);
    RunOptions options = options_of(plan, job.trial);
    if (plan.fault == Fault::kDisk) {
      const std::string folder = board + ".traces";
      options.environment["KOLO_TIMELINE"] = folder;
      const std::string small =
          "mkdir " + folder + " && mount -t tmpfs -o size=16k none " + folder + " && exec \"$@\"";
      words.insert(words.begin(), {"/usr/bin/unshare", "--mount", "/bin/sh", "-c", small, "sh"});
    }
    begin(words, options);
    return job;
  }
  for (int rank = 0; rank < plan.size(); ++rank) {
    RunOptions options = options_of(plan, job.trial);
    add_identity(plan, rank, options);
    begin(enter(plan.host_of(rank)), options);
  }
  return job;
}

void Stage::change_wire(const Plan& plan, bool broken) const {
  const int host = plan.host_of(plan.victim);
  if (plan.fault == Fault::kLink) {
    must_run({test::Hosts::ip_path(), "-n", hosts_->name(host), "link", "set", "eth0",
              broken ? "down" : "up"});
    return;
  }
  const bool lossy = plan.fault == Fault::kLossy;
  for (int other = 0; other < plan.hosts; ++other) {
    if (other == host && !lossy) continue;
    std::vector<std::string> words = enter(other);
    words.insert(words.end(), {"/usr/sbin/nft", broken ? "add table inet chaos; " + filter_of(plan)
                                                       : "delete table inet chaos"});
    must_run(words);
  }
}

bool Stage::strike(const Plan& plan, Board& board) const {
  const pid_t victim = board.cells[static_cast<std::size_t>(plan.victim)].pid;
  const auto send = [&](int number) { return ::kill(victim, number) == 0; };
  board.fault_began = monotonic_ns();
  bool done = true;
  switch (plan.fault) {
    case Fault::kKill: done = send(SIGKILL); break;
    case Fault::kFreeze:
    case Fault::kPause:
      done = send(SIGSTOP);
      board.fault_ended = monotonic_ns();
      sleep_us(plan.stop_ms * 1000);
      send(SIGCONT);
      board.resumed = monotonic_ns();
      return done;
    case Fault::kSlow:
      for (int i = 0; i < 6; ++i) {
        done = send(SIGSTOP) && done;
        sleep_us(30'000);
        send(SIGCONT);
        sleep_us(30'000);
      }
      break;
    case Fault::kLink:
    case Fault::kDrop: change_wire(plan, true); break;
    case Fault::kLossy: change_wire(plan, true); [[fallthrough]];
    case Fault::kNone: sleep_us(plan.stop_ms * 1000); break;
    default: sleep_us(300'000);
  }
  board.fault_ended = monotonic_ns();
  return done;
}

Observed Stage::perform(const Plan& plan) {
  Observed observed;
  observed.plan = plan;
  const std::size_t descriptors = own_descriptors();
  {
    const test::TemporaryFolder folder;
    BoardFile board = BoardFile::create(folder / "board");
    board->plan = plan;
    Job job = start(plan, folder / "board");
    const bool is_start = plan.fault == Fault::kFail || plan.fault == Fault::kLimit;
    const Cell& victim = board->cells[static_cast<std::size_t>(plan.victim)];
    if (plan.fault == Fault::kDie) {
      await([&] { return victim.died != 0 || victim.phase > Phase::kInit; });
      observed.struck = victim.died != 0;
      board->fault_began = board->fault_ended = victim.died.load();
    } else if (is_start) {
      observed.struck = await([&] { return victim.phase > Phase::kInit; });
      sleep_us(100'000);
    } else if (await_moment(plan, *board)) {
      sleep_us(plan.delay_us);
      observed.struck = strike(plan, *board);
    }
    const bool lets_them_end = is_start || plan.harmless() || !observed.struck;
    if (lets_them_end) board->finish = true;
    end(job, observed);
    observed.fault_began = board->fault_began;
    observed.fault_ended = board->fault_ended;
    for (int rank = 0; rank < plan.size(); ++rank) {
      observed.ranks.push_back(account_of(board->cells[static_cast<std::size_t>(rank)]));
    }
    if (breaks_wires(plan.fault) && observed.struck) change_wire(plan, false);
    take_census(job, observed);
  }
  if (own_descriptors() != descriptors)
    observed.leftovers.emplace_back("the director's descriptors");
  // Whoever makes fewer calls than it could have survived does not die.
  if (plan.fault == Fault::kDie && !observed.struck) {
    observed.plan.fault = Fault::kNone;
    observed.struck = true;
  }
  // Whoever leaves faster than he can be killed is not harmed.
  const Account& victim = observed.ranks[static_cast<std::size_t>(plan.victim)];
  if (plan.fault == Fault::kKill && victim.phase == Phase::kDone) {
    observed.plan.fault = Fault::kNone;
    observed.struck = true;
    observed.exit_codes.clear();  // it may have been killed between that word and its end
  }
  return observed;
}

void Stage::end(Job& job, Observed& observed) {
  for (const auto& process : job.processes) {
    test::Outcome outcome = process->wait();
    observed.exit_codes.push_back(outcome.exit_code);
    observed.words += outcome.out + outcome.err;
  }
}

void Stage::take_census(const Job& job, Observed& observed) const {
  std::vector<pid_t> living;
  for (int i = 0; i < 100; ++i) {
    living = processes_of(job.trial);
    if (living.empty()) break;
    sleep_us(10'000);
  }
  for (const pid_t pid : living) {
    observed.leftovers.push_back("process " + std::to_string(pid));
    ::kill(pid, SIGKILL);  // known as the trial's own by its environment
  }
  for (const std::string& file : shared_files()) observed.leftovers.push_back(file);
  for (int host = 0; hosts_ != nullptr && host < hosts_->count(); ++host) {
    for (const std::string& socket : sockets_in(hosts_->name(host))) {
      observed.leftovers.push_back(socket + " on " + hosts_->name(host));
    }
  }
}

}  // namespace kolo::chaos
