// The situations by id, over one transport (case_launch.h): case_ranks checks each rank's outcome
// to the letter; here the launcher's own part is checked: exit code, times, and what stands on
// stderr.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/multiproc/cases/case_launch.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(Situation, S01) { expect_well_by_all_algorithms(2, "S01"); }
TEST(Situation, S02) { expect_well_by_all_algorithms(3, "S02"); }
TEST(Situation, S03) { expect_well_by_all_algorithms(3, "S03"); }

TEST(Situation, S04) {
  const Outcome outcome = launch(2, "S04");
  constexpr int kTimedOut = 8;  // the program's own code, after it has found everything right
  EXPECT_EQ(outcome.exit_code, kTimedOut) << outcome.err;
  std::vector<std::string> warnings;
  for (const std::string& line : lines_of(outcome.err)) {
    if (line.find("stall:") != std::string::npos) warnings.push_back(line);
  }
  ASSERT_EQ(warnings.size(), 1u) << outcome.err;
  EXPECT_THAT(warnings[0], HasSubstr("'m/w' missing on rank 1"));
  EXPECT_THAT(warnings[0], HasSubstr("'m_1/w' missing on rank 0"));
}

// The one warning of S04 comes after 1 to 2 s.
TEST(Situation, S04WarnsInTime) {
  Flags arguments = kolorun_with_settings(2);
  for (const std::string& word : over(transport_under_test())) arguments.push_back(word);
  const TemporaryFolder folder;
  const std::string stamped = folder.script("stamp",
                                            "exec \"$@\" 2>&1 | while read -r line; do "
                                            "case $line in *stall:*) date +%s.%N >" +
                                                (folder / "warned") + ";; esac; done\n");
  arguments.insert(arguments.begin(), stamped);
  arguments.insert(arguments.end(), {case_ranks(), "S04"});
  Child child(arguments, {.environment = {}, .raw_environment = {}});
  const double started = now_seconds();
  ASSERT_TRUE(wait_for_file(folder / "warned", 4));
  EXPECT_GE(now_seconds() - started, 1);
  EXPECT_LE(now_seconds() - started, 1 + 1 + 0.5);  // the start of the ranks included
}

TEST(Situation, S05) { expect_well_by_all_algorithms(2, "S05"); }
TEST(Situation, S06) { expect_well_by_all_algorithms(2, "S06"); }
TEST(Situation, S07) { expect_well_by_all_algorithms(4, "S07"); }
TEST(Situation, S08) {
  expect_well_by_all_algorithms(2, "S08.2");
  expect_well_by_all_algorithms(3, "S08.3");
}
TEST(Numbers, FirstSightAndLaterGiveTheSameBits) {
  expect_well_by_all_algorithms(3, "same-bits");
  expect_well_by_all_algorithms(5, "same-bits");
}
TEST(Situation, S09) { expect_well_by_all_algorithms(2, "S09"); }
TEST(Situation, S10) { expect_well_by_all_algorithms(2, "S10"); }
TEST(Situation, S11) { expect_well_by_all_algorithms(2, "S11"); }
TEST(Situation, S12) { expect_well_by_all_algorithms(3, "S12"); }
TEST(Situation, S14) { expect_well_by_all_algorithms(2, "S14"); }
TEST(Situation, S15) { expect_well_by_all_algorithms(2, "S15"); }
TEST(Situation, S16) { expect_well_by_all_algorithms(2, "S16"); }

TEST(Situation, S17) {
  for (const char* limit : {"16", "17", "67108864"}) {
    SCOPED_TRACE(limit);
    expect_well_by_all_algorithms(3, "S17",
                                  {"-x", std::string("KOLO_FUSION_THRESHOLD_BYTES=") + limit});
  }
}

TEST(Situation, S19) { expect_well_by_all_algorithms(3, "S19"); }
TEST(Situation, S20) { expect_well(2, "S20"); }

TEST(Situation, S42) {
  const Outcome outcome = launch(4, "S42");
  EXPECT_EQ(outcome.exit_code, 9) << outcome.err;
  EXPECT_GE(outcome.seconds, 2);
  EXPECT_LT(outcome.seconds, 5);
  const std::vector<std::string> lines = lines_of(outcome.err);
  ASSERT_EQ(lines.size(), 4u) << outcome.err;
  EXPECT_THAT(lines[0], MatchesRegex("kolorun: rank 3 on .* failed first: exit code 9"));
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_THAT(lines[i], HasSubstr("ended by kolorun: "));
    const bool stubborn = lines[i].find("rank 1 ") != std::string::npos;
    EXPECT_THAT(lines[i], HasSubstr(stubborn ? "signal 9" : "signal 15"));
  }
}

TEST(Situation, S61) {
  const Outcome outcome = launch(2, "S61", {}, long_tests() ? 600 : 60);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  // At most one line about evictions a minute.
  EXPECT_LE(static_cast<double>(lines_of(outcome.err).size()), 1 + outcome.seconds / 60)
      << outcome.err;
}

TEST(Situation, S77) {
  const Outcome plain = run({case_ranks(), "S77"});
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(plain.out, "");
  ASSERT_EQ(lines_of(plain.err).size(), 1u) << plain.err;
  EXPECT_THAT(plain.err, HasSubstr("no launcher found"));
  EXPECT_THAT(plain.err, HasSubstr("KOLO_NOTICE=0"));
  RunOptions silent;
  silent.environment = {{"KOLO_NOTICE", "0"}};
  const Outcome quiet = run({case_ranks(), "S77"}, silent);
  EXPECT_EQ(quiet.exit_code, 0);
  EXPECT_EQ(quiet.err, "");
  expect_well(1, "S77");  // under kolorun there is nothing to notice
}

// ---- Beyond the list --------------------------------------------------------------------------

TEST(BadInput, OnOneRankIsToldToAllAndHarmsNobody) {
  expect_well(2, "bad-on-one");
  expect_well(3, "bad-on-one");
}
TEST(BadInput, OnAllRanksHarmsNobody) { expect_well(3, "bad-on-all"); }
TEST(BadInput, ABadMemberFailsItsGroupOnAllRanks) { expect_well(3, "bad-member"); }
TEST(BadInput, RefusedOptionsAreTold) { expect_well(3, "bad-options"); }
TEST(BadInput, HandlesNamesAndSecondInits) { expect_well(2, "bad-handles"); }

TEST(Limits, AnOperationsLimitFailsItOnAllRanks) { expect_well(3, "timeout"); }
TEST(Limits, AWaitsLimitLeavesTheRequestAlive) { expect_well(3, "wait-limit"); }

TEST(Requests, Callbacks) { expect_well(3, "callbacks"); }
TEST(Requests, Persistent) { expect_well_by_all_algorithms(3, "persistent"); }
TEST(Requests, Unnamed) { expect_well_by_all_algorithms(3, "unnamed"); }
TEST(Requests, SeveralThreads) { expect_well_by_all_algorithms(2, "threads"); }

// Every survivor has found what it should, whatever kolorun makes of the job.
void expect_survivors(const Outcome& outcome, int survivors, int exit_code) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("case_ranks:")));
  int found = 0;
  for (const std::string& line : lines_of(outcome.err)) {
    if (line.find("survived rank") != std::string::npos) ++found;
  }
  EXPECT_EQ(found, survivors) << outcome.err;
}

TEST(Endings, AnExitWithoutShutdownIsALostPeer) {
  expect_survivors(launch(3, "lost-by-exit"), 2, 0);
}
TEST(Endings, AReturnWithAnErrorIsALostPeer) {
  expect_survivors(launch(4, "lost-by-return"), 3, 5);
}
TEST(Endings, AKillIsALostPeer) {
  for (const char* algorithm : {"auto", "ring"}) {
    expect_survivors(launch(4, "lost-by-kill", {"--algorithm", algorithm}), 3, 137);
  }
}
TEST(Endings, AKillOfTheRootOrTheOnlyPeerIsALostPeer) {
  expect_survivors(launch(2, "lost-last"), 1, 137);
}
TEST(Endings, AShutdownEndsWhatTheOthersWaitFor) { expect_well(3, "shutdown-by-one"); }
TEST(Endings, ShutdownOneAfterAnother) { expect_well(4, "shutdown-in-turn"); }
TEST(Endings, ShutdownWithEverythingInFlight) { expect_well(3, "shutdown-in-flight"); }
TEST(Endings, AnAbortWakesAllWaiters) { expect_well(3, "abort"); }
TEST(Endings, RoundsOfInitAndShutdown) { expect_well(3, "rounds"); }
TEST(Endings, AStallEndsOnAllRanks) {
  const Outcome outcome = launch(3, "stall-last", {"--stall-check-shutdown-time-seconds", "1.5"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("'late' missing on rank 2"));
}

// A rank may fill its memory some seconds sooner than the other: that is no stall to be told.
const Flags kLongBetweenCalls = {"--no-stall-check"};

// Two ranks with 2 GiB each, or 3 GiB; over sockets only if there is time.
TEST(Sizes, S18) {
  const std::size_t need = std::size_t{long_tests() ? 9U : 6U} << 30;
  const std::string obstacle = obstacle_to_sizes(need, transport_under_test() != "shm");
  if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  expect_well(2, "S18", kLongBetweenCalls, 600);
}

TEST(Sizes, Above2To31Elements) {
  const std::string obstacle = obstacle_to_sizes(std::size_t{6} << 30, true);
  if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  expect_well(2, "huge", kLongBetweenCalls, 600);
}

}  // namespace
}  // namespace kolo::test
