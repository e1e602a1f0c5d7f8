// chaos: trials of one road after the other, drawn from the seeds S, S + 1, ...
//
//   chaos --road shm|tcp|hosts [--fault kill|freeze|...] [--trials N] [--seed S]
//         [--peer-timeout-ms T] [--ballast-mib B] [--calm-ms C] [--run-ms R] [--busy N]
//         [--seconds LIMIT] [--verbose]
//
// B: memory that the victim holds besides. C: who is told does nothing for so long, so that its own
// checks do not take the cores from those who are still to be told. R: how long a job without a
// fault (none), or with lossy wires, runs. N: busy loops beside the ranks all the while.
//
// Prints each trial that did not go as it must, with the command that does it again, and at the
// end a table of results and of how long the verdicts took. Ends with 0 if all were right.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "tests/chaos/report.h"
#include "tests/chaos/stage.h"

namespace kolo::chaos {
namespace {

struct Arguments {
  std::string program;
  Road road = Road::kShm;
  std::optional<Fault> fault;
  int trials = 10;
  std::uint64_t seed = 1;
  std::int64_t peer_timeout_ms = 0;  // 0: drawn
  std::int64_t ballast_mib = 0;
  std::int64_t calm_ms = 0;
  std::optional<std::int64_t> run_ms;
  int busy = 0;
  double seconds = 0;  // 0: no limit
  bool verbose = false;
};

bool read(int argc, char** argv, Arguments& arguments) {
  arguments.program = argv[0];
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--verbose") {
      arguments.verbose = true;
      continue;
    }
    if (++i == argc) return false;
    const char* value = argv[i];
    if (flag == "--road") {
      const auto road = road_of(value);
      if (!road) return false;
      arguments.road = *road;
    } else if (flag == "--fault") {
      arguments.fault = fault_of(value);
      if (!arguments.fault) return false;
    } else if (flag == "--trials") {
      arguments.trials = std::atoi(value);
    } else if (flag == "--seed") {
      arguments.seed = std::strtoull(value, nullptr, 10);
    } else if (flag == "--peer-timeout-ms") {
      arguments.peer_timeout_ms = std::atoll(value);
    } else if (flag == "--ballast-mib") {
      arguments.ballast_mib = std::atoll(value);
    } else if (flag == "--calm-ms") {
      arguments.calm_ms = std::atoll(value);
    } else if (flag == "--run-ms") {
      arguments.run_ms = std::atoll(value);
    } else if (flag == "--busy") {
      arguments.busy = std::atoi(value);
    } else if (flag == "--seconds") {
      arguments.seconds = std::atof(value);
    } else {
      return false;
    }
  }
  return true;
}

Plan plan_of(const Arguments& arguments, std::uint64_t seed) {
  Plan plan = draw_plan(seed, arguments.road, arguments.fault, arguments.peer_timeout_ms);
  plan.ballast_bytes = arguments.ballast_mib << 20;
  plan.calm_ms = arguments.calm_ms;
  if (plan.fault == Fault::kNone) plan.stop_ms = arguments.run_ms.value_or(300);
  if (plan.fault == Fault::kLossy) plan.stop_ms = arguments.run_ms.value_or(plan.stop_ms);
  return plan;
}

// Processes that want a core each, while this lives.
class BusyLoops {
 public:
  explicit BusyLoops(int count) {
    const test::RunOptions forever{
        .timeout_seconds = 1e9, .environment = {}, .raw_environment = {}};
    for (int i = 0; i < count; ++i) {
      loops_.push_back(std::make_unique<test::Child>(
          std::vector<std::string>{"/bin/sh", "-c", "while :; do :; done"}, forever));
    }
  }

 private:
  std::vector<std::unique_ptr<test::Child>> loops_;  // which are killed with them
};

std::string command_of(const Arguments& arguments, std::uint64_t seed) {
  std::string text = arguments.program + " --road " + word_of(arguments.road);
  if (arguments.fault) text += std::string(" --fault ") + word_of(*arguments.fault);
  if (arguments.peer_timeout_ms > 0) {
    text += " --peer-timeout-ms " + std::to_string(arguments.peer_timeout_ms);
  }
  if (arguments.ballast_mib > 0) text += " --ballast-mib " + std::to_string(arguments.ballast_mib);
  if (arguments.calm_ms > 0) text += " --calm-ms " + std::to_string(arguments.calm_ms);
  return text + " --trials 1 --verbose --seed " + std::to_string(seed);
}

void print_trial(const Observed& observed, const std::vector<std::string>& complaints,
                 const std::string& command) {
  std::printf("%s\n", text_of(observed.plan).c_str());
  for (const std::string& complaint : complaints) std::printf("  WRONG %s\n", complaint.c_str());
  for (std::size_t rank = 0; rank < observed.ranks.size(); ++rank) {
    const Account& account = observed.ranks[rank];
    std::printf("  rank %zu: %s, %lld steps", rank, word_of(account.phase),
                static_cast<long long>(account.steps));
    if (account.status != 0) {
      std::printf(", in %s after %.3f ms: %s", word_of(account.failed_in),
                  static_cast<double>(account.failed - observed.fault_began) / 1e6,
                  account.error.c_str());
    }
    std::printf("\n");
  }
  if (!observed.words.empty()) std::printf("%s", observed.words.c_str());
  if (!complaints.empty()) std::printf("  again: %s\n", command.c_str());
}

int run(const Arguments& arguments) {
  const std::string obstacle = test::Hosts::obstacle();
  if (!obstacle.empty() && arguments.road == Road::kHosts) {
    std::printf("SKIPPED: %s\n", obstacle.c_str());
    return 0;
  }
  if (!obstacle.empty()) std::printf("sockets are not counted: %s\n", obstacle.c_str());
  Stage stage(arguments.road == Road::kHosts ? 2 : obstacle.empty() ? 1 : 0);
  Report report;
  const BusyLoops busy(arguments.busy);
  const double began = test::now_seconds();
  int done = 0;
  std::printf("seeds from %llu\n", static_cast<unsigned long long>(arguments.seed));
  for (; done < arguments.trials; ++done) {
    if (arguments.seconds > 0 && test::now_seconds() - began > arguments.seconds) break;
    const std::uint64_t seed = arguments.seed + static_cast<std::uint64_t>(done);
    const Observed observed = stage.perform(plan_of(arguments, seed));
    const std::vector<std::string> complaints = judge(observed);
    report.add(observed, complaints);
    if (arguments.verbose || !complaints.empty()) {
      print_trial(observed, complaints, command_of(arguments, seed));
    }
    if ((done + 1) % 50 == 0) std::printf("%d trials, %d wrong\n", done + 1, report.failures());
    std::fflush(stdout);
  }
  std::printf("%d trials over %s in %.0f s\n\n%s", done, word_of(arguments.road),
              test::now_seconds() - began, report.table().c_str());
  return report.failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kolo::chaos

int main(int argc, char** argv) {
  kolo::chaos::Arguments arguments;
  if (!kolo::chaos::read(argc, argv, arguments)) {
    std::fprintf(stderr,
                 "usage: chaos --road shm|tcp|hosts [--fault kill|freeze|pause|slow|link|drop|fail|"
                 "limit|disk|clock|lossy|die|none]\n             [--trials N] [--seed S] "
                 "[--peer-timeout-ms T] "
                 "[--ballast-mib B] [--calm-ms C] [--run-ms R]\n             [--busy N] "
                 "[--seconds LIMIT] [--verbose]\n");
    return 2;
  }
  try {
    return kolo::chaos::run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chaos: %s\n", error.what());
    return 1;
  }
}
