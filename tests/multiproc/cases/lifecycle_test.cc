// How jobs begin and end, over one transport (case_launch.h): lifecycle.cc and shutdowns.cc check
// each rank's outcome; here the launcher's part, ranks that are started by hand, and what stands on
// stderr.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/multiproc/cases/case_launch.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A rank that no launcher has started.
RunOptions by_hand(int rank, int size, const std::string& place) {
  RunOptions options;
  options.environment = {{"KOLO_RANK", std::to_string(rank)},
                         {"KOLO_SIZE", std::to_string(size)},
                         {"KOLO_RENDEZVOUS", place},
                         {"KOLO_SECRET", "a secret of sufficient length"},
                         {"KOLO_TRANSPORT", transport_under_test()},
                         {"KOLO_START_TIMEOUT_MS", "5000"}};
  return options;
}

// Of this machine, and free a moment ago.
std::string free_place() {
  const Outcome outcome = run({case_ranks(), "free-place"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return lines_of(outcome.out).at(0);
}

TEST(LifeCycle, S26OfThreeRanksOneIsMissing) {
  const std::string place = free_place();
  Child second({case_ranks(), "S26"}, by_hand(2, 3, place));
  Child first({case_ranks(), "S26"}, by_hand(0, 3, place));
  for (Child* child : {&first, &second}) {
    const Outcome outcome = child->wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
}

TEST(LifeCycle, S31AHelperThatInheritsTheEnvironment) { expect_well(2, "S31"); }

TEST(LifeCycle, S33CallbacksThatWaitShutDownAndThrow) {
  const Outcome outcome = launch(2, "S33");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<std::string> lines = lines_of(outcome.err);
  EXPECT_EQ(lines.size(), 2u * 3) << outcome.err;  // ranks, rounds
  for (const std::string& line : lines) {
    EXPECT_THAT(line, HasSubstr("'throws'"));
    EXPECT_THAT(line, HasSubstr("exception"));
  }
}

TEST(LifeCycle, S39MessagesAboutManyLateTensorsAreFewAndShort) {
  const Outcome outcome = launch(2, "S39", {"--stall-check-shutdown-time-seconds", "0"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<std::string> lines = lines_of(outcome.err);
  EXPECT_GE(lines.size(), 1u);
  EXPECT_LE(lines.size(), 5u) << outcome.err;  // one a second, from 1 s on; one coordinator tells
  for (const std::string& line : lines) {
    EXPECT_LT(line.size(), 2048u);
    EXPECT_THAT(line, HasSubstr("300"));
    std::size_t names = 0;
    for (std::size_t at = line.find("'enc"); at != std::string::npos;
         at = line.find("'enc", at + 1))
      ++names;
    EXPECT_GE(names, 1u) << line;
    EXPECT_LE(names, 10u) << line;
  }
}

TEST(LifeCycle, S60TheLimitOfDescriptorsIsRaised) {
  expect_well(16, "S60-soft");
  // Under kolorun, which has the same limit and leaves the ranks theirs.
  const TemporaryFolder folder;
  Flags arguments = kolorun_with_settings(16);
  arguments.insert(arguments.begin(),
                   folder.script("limited", "ulimit -Sn 40 && ulimit -Hn 4096 && exec \"$@\"\n"));
  for (const std::string& word : over(transport_under_test())) arguments.push_back(word);
  arguments.insert(arguments.end(), {case_ranks(), "S60-soft"});
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}
TEST(LifeCycle, S60ALimitThatCannotBeRaisedIsNamed) { expect_well(16, "S60-hard"); }

TEST(LifeCycle, S74SizesThatAreNone) { EXPECT_EQ(run({case_ranks(), "S74-sizes"}).exit_code, 0); }
TEST(LifeCycle, S74TwoServersOnOnePort) {
  const Outcome outcome = run({case_ranks(), "S74-port"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST(LifeCycle, AForkedChildIsRefusedAndDisturbsNobody) { expect_well(3, "fork"); }
TEST(LifeCycle, AForkedChildDoesNotHideItsParentsDeath) {
  const Outcome outcome = launch(3, "lost-with-a-child");
  EXPECT_EQ(outcome.exit_code, 137) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("survived rank 0"));
  EXPECT_THAT(outcome.err, HasSubstr("survived rank 2"));
}
TEST(LifeCycle, AnInitAfterOneThatTimedOut) {
  expect_well(3, "init-after-timeout", {"--start-timeout", "1"});
}

TEST(LifeCycle, AContextThatEndsInAStaticDestructor) { expect_well(3, "static-context"); }

TEST(LifeCycle, AnExitFromMainWithWorkInFlight) {
  const int rounds = long_tests() ? 100 : 10;
  for (int round = 0; round < rounds; ++round) {
    const Outcome outcome = launch(3, "exit-in-flight");
    ASSERT_EQ(outcome.exit_code, 0) << "round " << round << ": " << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("signal"))) << "round " << round;
  }
}

TEST(Shutdown, OfADeadPeer) {
  for (const char* id : {"shutdown-dead-peer", "shutdown-dead-peer-in-flight"}) {
    const Outcome outcome = launch(3, id);
    EXPECT_EQ(outcome.exit_code, 137) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("survived rank 0"));
    EXPECT_THAT(outcome.err, HasSubstr("survived rank 2"));
    EXPECT_THAT(outcome.err, Not(HasSubstr("case_ranks:")));
  }
}
TEST(Shutdown, OfAFrozenPeer) {
  expect_well(3, "shutdown-frozen-peer", {"--peer-timeout-seconds", "1"});
}
TEST(Shutdown, SaysWhatItCutsOff) {
  for (const char* id : {"shutdown-cuts-off-0", "shutdown-cuts-off-1"}) {
    expect_well(2, id, {"--peer-timeout-seconds", "60", "-x", "KOLO_SHUTDOWN_TIMEOUT_MS=500"});
  }
}
TEST(Shutdown, WhileOthersAbort) { expect_well(3, "shutdown-amid-aborts"); }
TEST(Shutdown, DuringAJoin) { expect_well(3, "shutdown-in-join"); }
// On a machine with few cores a set may wait for longer than a second.
TEST(Shutdown, AmongBusySets) { expect_well(4, "shutdown-among-busy-sets", {"--no-stall-check"}); }
TEST(Shutdown, AfterACallThatWasRefused) {
  for (const char* id : {"shutdown-refused-0", "shutdown-refused-1", "shutdown-refused-known",
                         "shutdown-refused-alone"}) {
    expect_well(3, id);
  }
}
TEST(Shutdown, InsideAGroup) { expect_well(3, "shutdown-in-group"); }
TEST(Shutdown, FromTwoThreads) { expect_well(3, "shutdown-from-two-threads"); }

}  // namespace
}  // namespace kolo::test
