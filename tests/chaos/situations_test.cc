// Situations in which ranks die, hosts are cut off, clocks jump: S28, S29, S34, S35, S36, S38, S76,
// by their ids; and small doses of random trials over each road (the program chaos gives large
// ones). Over KOLO_TEST_TRANSPORT where one is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/chaos/stage.h"
#include "tests/multiproc/cases/case_launch.h"

namespace kolo::chaos {
namespace {

using test::Flags;
using test::Hosts;
using test::long_tests;
using test::Outcome;
using test::RunOptions;

std::string obstacle_to_hosts() { return Hosts::obstacle(); }

Road road_under_test() { return *road_of(test::transport_under_test()); }

Outcome launch(int ranks, const std::string& id, const RunOptions& options) {
  Flags words = {test::kolorun(),
                 "-np",
                 std::to_string(ranks),
                 "--start-timeout",
                 "10",
                 "--peer-timeout-seconds",
                 "3",
                 "--grace",
                 "10"};
  for (const std::string& word : test::over(test::transport_under_test())) words.push_back(word);
  words.insert(words.end(), {KOLO_CHAOS_CASES, id});
  return test::run(words, options);
}

RunOptions patient(double seconds) {
  RunOptions options;
  options.timeout_seconds = seconds;
  return options;
}

void expect_right(const Observed& observed) {
  const std::vector<std::string> complaints = judge(observed);
  EXPECT_THAT(complaints, ::testing::IsEmpty()) << text_of(observed.plan) << "\n" << observed.words;
}

TEST(Situation, S28) {
  const Outcome outcome = launch(3, "S28", patient(120));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
}

TEST(Situation, S29) {
  for (int run = 0; run < (long_tests() ? 200 : 1); ++run) {
    for (const char* id : {"S29", "S29-exit"}) {
      const Outcome outcome = launch(3, id, patient(60));
      EXPECT_EQ(outcome.exit_code, 0) << id << ", run " << run << "\n"
                                      << outcome.out << outcome.err;
    }
  }
}

TEST(Situation, S34) {
  Stage stage(obstacle_to_hosts().empty() ? 1 : 0);
  for (std::uint64_t seed = 34'000; seed < 34'000 + (long_tests() ? 1000U : 6U); ++seed) {
    Plan plan = draw_plan(seed, road_under_test(), Fault::kKill, 3000);
    plan.victim = 2;
    plan.moment = Moment::kTransfer;
    plan.workload = Workload::kAllreduce4M;
    plan.by_kolorun = true;
    expect_right(stage.perform(plan));
  }
}

// A rank that dies at any step of kolo_init: at the n-th call of each kind, as far as there is one.
// The others are told at once, or, without a launcher, that it is missing.
TEST(Situation, ADeathAtAnyStepOfInit) {
  Stage stage(obstacle_to_hosts().empty() ? 1 : 0);
  const int stride = long_tests() ? 1 : 7;
  int deaths = 0;
  for (const std::int32_t victim : {0, 3}) {
    for (std::size_t call = 0; call < deadly_calls().size(); ++call) {
      for (std::int32_t nth = 1 + static_cast<int>(call) % stride;; nth += stride) {
        Plan plan = draw_plan(32'000, road_under_test(), Fault::kDie, 3000);
        plan.victim = victim;
        plan.call = static_cast<std::int32_t>(call);
        plan.nth = nth;
        plan.by_kolorun = nth % 2 == 0;
        const Observed observed = stage.perform(plan);
        expect_right(observed);
        if (observed.plan.fault == Fault::kNone) break;  // it makes fewer
        ++deaths;
      }
    }
  }
  EXPECT_GE(deaths, 20);  // else nothing was tried
}

// What a thread is woken by is refused to a rank, one thing after the other: an error with a
// status, or nothing where there is another way, and never a wait without end.
TEST(Situation, EventsThatAreRefused) {
  Stage stage(obstacle_to_hosts().empty() ? 1 : 0);
  const auto& names = calls();
  for (const char* name : {"epoll_ctl", "eventfd"}) {
    const auto call = std::find(names.begin(), names.end(), name) - names.begin();
    for (const std::int32_t victim : {0, 2}) {
      for (std::int32_t nth = 1; nth <= 12; nth += long_tests() ? 1 : 3) {
        Plan plan = draw_plan(31'000, road_under_test(), Fault::kFail, 3000);
        plan.victim = victim;
        plan.call = static_cast<std::int32_t>(call);
        plan.nth = nth;
        plan.by_kolorun = false;  // so that rank 0 serves the rendezvous
        expect_right(stage.perform(plan));
      }
    }
  }
}

// Survivors need not wait until the system has taken the victim's memory down: all of them have
// seen the process end, and none the end of its connections, which comes later.
TEST(Situation, AVictimWithMuchMemory) {
  Stage stage(obstacle_to_hosts().empty() ? 1 : 0);
  for (std::uint64_t seed = 33'000; seed < 33'000 + (long_tests() ? 100U : 3U); ++seed) {
    Plan plan = draw_plan(seed, road_under_test(), Fault::kKill, 3000);
    plan.ballast_bytes = (long_tests() ? 1024LL : 256LL) << 20;
    plan.moment = seed % 3 == 0 ? Moment::kIdle : Moment::kTransfer;
    const Observed observed = stage.perform(plan);
    expect_right(observed);
    for (int rank = 0; rank < plan.size(); ++rank) {
      if (rank == plan.victim) continue;
      EXPECT_THAT(observed.ranks[static_cast<std::size_t>(rank)].error,
                  ::testing::HasSubstr("its process ended"))
          << text_of(plan);
    }
  }
}

TEST(Situation, S76) {
  RunOptions options = patient(60);
  options.environment["LD_PRELOAD"] = KOLO_CHAOS_SHIM;
  const Outcome outcome = launch(2, "S76", options);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "");
}

class OverWires : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string obstacle = obstacle_to_hosts();
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  }
};

Plan one_rank_per_host(std::int32_t hosts, std::uint64_t seed, Fault fault) {
  Plan plan = draw_plan(seed, Road::kHosts, fault, 3000);
  plan.hosts = hosts;
  plan.ranks_on = {};
  for (int host = 0; host < hosts; ++host) plan.ranks_on[static_cast<std::size_t>(host)] = 1;
  plan.moment = Moment::kTransfer;
  plan.victim = 1;
  return plan;
}

TEST_F(OverWires, S35) {
  Stage stage(2);
  for (std::uint64_t seed = 35'000; seed < 35'000 + (long_tests() ? 200U : 1U); ++seed) {
    Plan plan = one_rank_per_host(2, seed, Fault::kLink);
    plan.workload = Workload::kAllreduce64M;
    const Observed observed = stage.perform(plan);  // which allows 3 to 3.5 s
    expect_right(observed);
    for (const Account& rank : observed.ranks) EXPECT_LE(rank.shutdown_ns, 1'000'000'000);
  }
}

TEST_F(OverWires, S36) {
  Stage stage(3);
  for (std::uint64_t seed = 36'000; seed < 36'000 + (long_tests() ? 200U : 4U); ++seed) {
    Plan plan = one_rank_per_host(3, seed, Fault::kKill);
    plan.by_kolorun = seed % 2 == 0;
    expect_right(stage.perform(plan));
  }
}

TEST_F(OverWires, S38) {
  const Hosts hosts(3);
  const auto drop = [&](int at, int from) {
    const Outcome outcome = test::run(
        {Hosts::ip_path(), "netns", "exec", hosts.name(at), "/usr/sbin/nft",
         "add table inet chaos; add chain inet chaos into { type filter hook input priority 0; "
         "policy accept; }; add rule inet chaos into ip saddr 10.77.0." +
             std::to_string(from + 1) + " drop"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  };
  drop(1, 2);
  drop(2, 1);
  // The launcher's own limit is no part of this.
  const Outcome outcome =
      hosts.launch(1, {KOLO_CHAOS_CASES, "S38"}, {"--start-timeout", "5", "--grace", "20"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
}

// Packets are lost, sent again by the kernel, and nobody takes that for the end of a rank.
TEST_F(OverWires, LossyWires) {
  Stage stage(2);
  for (std::uint64_t seed = 37'000; seed < 37'000 + (long_tests() ? 100U : 3U); ++seed) {
    expect_right(stage.perform(draw_plan(seed, Road::kHosts, Fault::kLossy)));
  }
}

// A few trials of everything that a road can have.
void expect_trials_right(Road road, int hosts, std::uint64_t seed, double seconds) {
  std::printf("seeds from %llu over %s\n", static_cast<unsigned long long>(seed), word_of(road));
  Stage stage(hosts);
  const double end = test::now_seconds() + seconds * (long_tests() ? 20 : 1);
  for (int done = 0; test::now_seconds() < end; ++done, ++seed) {
    expect_right(stage.perform(draw_plan(seed, road, std::nullopt)));
  }
}

TEST(Chaos, Shm) { expect_trials_right(Road::kShm, obstacle_to_hosts().empty() ? 1 : 0, 1, 8); }
TEST(Chaos, Tcp) { expect_trials_right(Road::kTcp, obstacle_to_hosts().empty() ? 1 : 0, 101, 8); }
TEST_F(OverWires, Chaos) { expect_trials_right(Road::kHosts, 2, 201, 12); }

}  // namespace
}  // namespace kolo::chaos
