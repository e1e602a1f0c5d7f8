// How a job ends: order of failures, signals, nothing left behind. (Exit codes: kinds_test.cc.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <ctime>
#include <fstream>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kKolorun = KOLO_KOLORUN;
const std::string kProbe = KOLO_PROBE;

Outcome kolorun(std::vector<std::string> arguments, const RunOptions& options = {}) {
  arguments.insert(arguments.begin(), kKolorun);
  return run(arguments, options);
}

Outcome shell(int ranks, const std::string& script, const std::vector<std::string>& flags = {}) {
  std::vector<std::string> arguments = {"-np", std::to_string(ranks), "--grace", "2"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"/bin/sh", "-c", script});
  return kolorun(arguments);
}

std::vector<pid_t> read_pids(const TemporaryFolder& folder, int count) {
  std::vector<pid_t> pids;
  for (int i = 0; i < count; ++i) {
    const std::string path = folder / std::to_string(i);
    EXPECT_TRUE(wait_for_file(path, 10)) << path;
    pids.push_back(static_cast<pid_t>(std::atoi(read_file(path).c_str())));
  }
  return pids;
}

// Whoever ends because of another's death may be gone before it.
TEST(FirstFailure, AKilledRankThatTakesLongToDieIsStillTheFirst) {
  for (int i = 0; i < 10; ++i) {
    const TemporaryFolder folder;
    const Outcome outcome = kolorun({"-np", "2", kProbe, "kill-other", folder.path()});
    ASSERT_EQ(outcome.exit_code, 137) << outcome.err;
    EXPECT_THAT(lines_of(outcome.err)[0], HasSubstr("rank 1 on localhost"));
  }
}

// 2 ranks; rank 0 exits with code 1 at 1 s; rank 1 sleeps 60 s outside the library.
TEST(S30, ARankThatSleepsDoesNotHoldUpTheEnd) {
  const TemporaryFolder folder;
  const Outcome outcome = kolorun({"-np", "2", "--grace", "2", "/bin/sh", "-c",
                                   "echo $$ >" + folder.path() + "/$RANK; exec " KOLO_INIT_LATE});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_GE(outcome.seconds, 1);
  EXPECT_LT(outcome.seconds, 1 + 1 + 2);  // 1 s, then within 1 s + grace
  for (const pid_t pid : read_pids(folder, 2)) EXPECT_FALSE(is_alive(pid));
  EXPECT_THAT(outcome.err, HasSubstr("rank 0 on localhost"));
}

// 2 ranks calling _exit(3) right after init; 1000 launches, under load.
TEST(S41, ExitRightAfterInit) {
  std::vector<std::unique_ptr<Child>> load;
  for (int i = 0; i < 2; ++i) {
    load.push_back(
        std::make_unique<Child>(std::vector<std::string>{"/bin/sh", "-c", "while :; do :; done"},
                                RunOptions{.environment = {}, .raw_environment = {}}));
  }
  const int launches = repetitions(1000);
  int right = 0;
  std::string first_wrong;
  for (int i = 0; i < launches; ++i) {
    const Outcome outcome = kolorun({"-np", "2", "/bin/sh", "-c", "exec " KOLO_INIT_EXIT});
    if (outcome.exit_code == 3)
      ++right;
    else if (first_wrong.empty()) {
      first_wrong = std::to_string(i) + ": " + std::to_string(outcome.exit_code) + "\n" +
                    outcome.out + outcome.err;
    }
  }
  EXPECT_EQ(right, launches) << first_wrong;
}

// The others see the loss by themselves and say so, before they are told to end.
TEST(FirstFailure, OthersHaveTimeToReport) {
  const Outcome outcome = shell(3,
                                "[ $RANK = 1 ] && exit 5; sleep 0.1; echo saw it >&2; "
                                "[ $RANK = 0 ] && exit 7; exec sleep 60");
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_GE(outcome.seconds, 0.3);
  EXPECT_LT(outcome.seconds, 1.3);
  EXPECT_THAT(outcome.err, HasSubstr("[0] saw it\n"));
  EXPECT_THAT(outcome.err, HasSubstr("[2] saw it\n"));
  EXPECT_THAT(outcome.err, HasSubstr("failed first: exit code 5"));
  EXPECT_THAT(outcome.err, HasSubstr("failed too: exit code 7"));
  EXPECT_THAT(outcome.err, HasSubstr("ended by kolorun: signal 15"));
}

// Whether it ends while the others wait or before they come, with success or not.
TEST(Meeting, ARankThatEndsBeforeItJoinsDoesNotLeaveTheOthersWaiting) {
  for (const int code : {0, 6}) {
    for (const char* rank : {"0", "1"}) {
      const Outcome outcome =
          shell(2, "[ $RANK = " + std::string(rank) + " ] || sleep 0.2; [ $RANK = 1 ] && exit " +
                       std::to_string(code) + "; exec " + kProbe + " join exit 0");
      EXPECT_EQ(outcome.exit_code, code == 0 ? 102 : code) << outcome.err;
      EXPECT_LT(outcome.seconds, 2);
      EXPECT_THAT(outcome.err, HasSubstr("[0] probe: rank 1 on localhost ended (exit code " +
                                         std::to_string(code) + ") before it joined the job"));
      EXPECT_THAT(outcome.err, HasSubstr(code == 0 ? "kept the job from starting (exit code 0)"
                                                   : "failed first: exit code 6"));
    }
  }
}

// 4 ranks; rank 3 exits with 9; the others die of the launcher's SIGTERM and one of SIGKILL after
// the grace time.
TEST(S42, TheReportNamesTheCauseFirst) {
  const TemporaryFolder folder;
  const Outcome outcome =
      shell(4, "[ $RANK = 1 ] && trap '' TERM; echo >" + folder.path() +
                   "/$RANK;"
                   "if [ $RANK = 3 ]; then while ! [ -e " +
                   folder.path() + "/0 -a -e " + folder.path() + "/1 -a -e " + folder.path() +
                   "/2 ]; do sleep 0.01; done; exit 9; fi;"
                   "sleep 60; sleep 60");
  EXPECT_EQ(outcome.exit_code, 9);
  EXPECT_GE(outcome.seconds, 2);
  EXPECT_LT(outcome.seconds, 5);
  const std::vector<std::string> lines = lines_of(outcome.err);
  ASSERT_EQ(lines.size(), 4u) << outcome.err;
  EXPECT_THAT(lines[0], ::testing::MatchesRegex(
                            "kolorun: rank 3 on localhost .pid [0-9]+. failed first: exit code 9"));
  int terminated = 0;
  int killed = 0;
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_THAT(lines[i], HasSubstr("ended by kolorun: "));
    if (lines[i].find("signal 15 (Terminated)") != std::string::npos) ++terminated;
    if (lines[i].find("signal 9 (Killed)") != std::string::npos) {
      ++killed;
      EXPECT_THAT(lines[i], HasSubstr("rank 1 "));
    }
  }
  EXPECT_EQ(terminated, 2);
  EXPECT_EQ(killed, 1);
}

// sh -c 'sleep 300 & exec worker', and a script that does not exec.
TEST(Orphans, HelpersOfRanksAreGoneAfterAFailure) {
  for (const char* body :
       {"sleep 300 & exec sleep 300", "sleep 300; echo", "trap '' TERM; sleep 300"}) {
    const TemporaryFolder folder;
    const Outcome outcome = shell(2, "echo $$ >" + folder.path() +
                                         "/$RANK; [ $RANK = 0 ] && "
                                         "{ sleep 300 & sleep 0.2; exit 6; }; " +
                                         std::string(body));
    EXPECT_EQ(outcome.exit_code, 6) << body;
    EXPECT_TRUE(wait_until_gone(read_pids(folder, 2), 1)) << body;
  }
}

TEST(Orphans, HelpersOfRanksAreGoneAfterSuccessAndDoNotHoldItUp) {
  const TemporaryFolder folder;
  const Outcome outcome = shell(2, "echo $$ >" + folder.path() + "/$RANK; sleep 300 & echo done");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_LT(outcome.seconds, 2);
  EXPECT_THAT(outcome.out, HasSubstr("[1] done\n"));
  EXPECT_TRUE(wait_until_gone(read_pids(folder, 2), 1));
}

// A daemon that left its group keeps the pipe; it may live, but kolorun does not wait for it.
TEST(Orphans, ADaemonThatKeepsThePipeDoesNotHoldUpTheEnd) {
  const Outcome outcome = shell(1, "setsid sleep 3 & echo done");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_LT(outcome.seconds, 2);
  EXPECT_EQ(outcome.out, "[0] done\n");
}

constexpr const char* kStayAlive =
    "sleep 300 & trap '' TERM INT HUP; echo $$ >$D/$RANK; "
    "while :; do sleep 1; done";

TEST(Orphans, KillingKolorunEndsEverything) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{},
        std::vector<std::string>{"--launcher", "fork", "-H", "a:2,b:1"}}) {
    const TemporaryFolder folder;
    std::vector<std::string> arguments = {kKolorun, "-np", "3"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    if (!flags.empty()) arguments.insert(arguments.end(), {"--network-interfaces", "lo"});
    arguments.insert(arguments.end(), {"/bin/sh", "-c", kStayAlive});
    Child child(arguments, {.environment = {{"D", folder.path()}}, .raw_environment = {}});
    const std::vector<pid_t> groups = read_pids(folder, 3);
    child.signal(SIGKILL);
    EXPECT_TRUE(wait_until_gone(groups, 1));
  }
}

TEST(Orphans, KillingARemoteAgentEndsTheJob) {
  const TemporaryFolder folder;
  const std::string rsh =
      folder.script("rsh", "echo $$ >" + folder.path() + "/agent.$1; shift; exec \"$@\"\n");
  Child child({kKolorun, "-np", "3", "-H", "a:1,b:2", "--grace", "2", "--launcher-exec", rsh,
               "--network-interfaces", "lo", "/bin/sh", "-c", kStayAlive},
              {.environment = {{"D", folder.path()}}, .raw_environment = {}});
  const std::vector<pid_t> groups = read_pids(folder, 3);
  ASSERT_EQ(::kill(std::atoi(read_file(folder / "agent.b").c_str()), SIGKILL), 0);
  EXPECT_TRUE(wait_until_gone({groups[1], groups[2]}, 1));  // also their helpers
  const Outcome outcome = child.wait();
  EXPECT_EQ(outcome.exit_code, 125) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("agent on host b ended unexpectedly with signal 9"));
  EXPECT_TRUE(wait_until_gone(groups, 1));
}

// Two agents; every rank writes when its SIGTERM came. (In two namespaces: tests/multihost.)
TEST(S44, SigtermReachesAllRanksAtOnceAndNobodyIsKilled) {
  for (int round = 0; round < (long_tests() ? 500 : 3); ++round) {
    const TemporaryFolder folder;
    Child child({kKolorun, "-np", "2", "--launcher", "fork", "-H", "a,b", "--network-interfaces",
                 "lo", kProbe, "stamp", folder.path()},
                {});
    for (const char* name : {"0.ready", "1.ready"}) ASSERT_TRUE(wait_for_file(folder / name, 10));
    timespec sent{};
    ::clock_gettime(CLOCK_MONOTONIC, &sent);
    child.signal(SIGTERM);
    const Outcome outcome = child.wait();
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    for (const char* name : {"0.stamp", "1.stamp"}) {
      const std::string bytes = read_file(folder / name);
      timespec came{};
      ASSERT_EQ(bytes.size(), sizeof came);
      std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(&came));
      const double delay = static_cast<double>(came.tv_sec - sent.tv_sec) +
                           static_cast<double>(came.tv_nsec - sent.tv_nsec) * 1e-9;
      EXPECT_LE(delay, 0.2) << "round " << round;
    }
  }
}

TEST(Signals, TheOthersAreForwarded) {
  for (const char* name : {"INT", "HUP", "USR1", "USR2"}) {
    const std::map<std::string, int> numbers = {
        {"INT", SIGINT}, {"HUP", SIGHUP}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}};
    const TemporaryFolder folder;
    Child child({kKolorun, "-np", "2", "/bin/sh", "-c",
                 "trap 'echo got; exit 0' " + std::string(name) +
                     "; echo $$ >$D/$RANK; "
                     "while :; do sleep 0.05; done"},
                {.environment = {{"D", folder.path()}}, .raw_environment = {}});
    read_pids(folder, 2);
    child.signal(numbers.at(name));
    const Outcome outcome = child.wait();
    EXPECT_EQ(outcome.exit_code, 0) << name << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("[0] got\n")) << name;
    EXPECT_THAT(outcome.out, HasSubstr("[1] got\n")) << name;
  }
}

TEST(Signals, DeathByAForwardedSignalIsTheExitCode) {
  const TemporaryFolder folder;
  Child child({kKolorun, "-np", "2", "/bin/sh", "-c", "echo $$ >$D/$RANK; exec sleep 60"},
              {.environment = {{"D", folder.path()}}, .raw_environment = {}});
  read_pids(folder, 2);
  child.signal(SIGINT);
  const Outcome outcome = child.wait();
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_EQ(outcome.err, "kolorun: interrupted by the user (signal 2, Ctrl-C)\n");
}

// Whatever the ranks make of it: no rank is called the first that failed.
TEST(Signals, AnInterruptionIsNotARanksFailure) {
  const TemporaryFolder folder;
  Child child({kKolorun, "-np", "3", "/bin/sh", "-c",
               "[ $RANK = 2 ] && trap 'exit 5' INT; echo $$ >$D/$RANK; "
               "while :; do sleep 0.05; done"},
              {.environment = {{"D", folder.path()}}, .raw_environment = {}});
  read_pids(folder, 3);
  child.signal(SIGINT);
  const Outcome outcome = child.wait();
  EXPECT_EQ(outcome.exit_code, 130);
  const std::vector<std::string> lines = lines_of(outcome.err);
  ASSERT_EQ(lines.size(), 2u) << outcome.err;
  EXPECT_EQ(lines[0], "kolorun: interrupted by the user (signal 2, Ctrl-C)");
  EXPECT_THAT(lines[1], HasSubstr("ended after that: exit code 5"));
}

TEST(Signals, OneThatIsSentToKolorunIsNotARanksFailure) {
  const TemporaryFolder folder;
  Child child({kKolorun, "-np", "2", "/bin/sh", "-c", "echo $$ >$D/$RANK; exec sleep 60"},
              {.environment = {{"D", folder.path()}}, .raw_environment = {}});
  read_pids(folder, 2);
  child.signal(SIGTERM);
  const Outcome outcome = child.wait();
  EXPECT_EQ(outcome.exit_code, 143);
  EXPECT_EQ(outcome.err, "kolorun: ended by signal 15 (Terminated), sent to kolorun\n");
}

TEST(Signals, WhoIgnoresItIsKilledAfterTheGrace) {
  const TemporaryFolder folder;
  Child child({kKolorun, "-np", "2", "--grace", "1", "/bin/sh", "-c", kStayAlive},
              {.environment = {{"D", folder.path()}}, .raw_environment = {}});
  const std::vector<pid_t> groups = read_pids(folder, 2);
  const double sent = now_seconds();
  child.signal(SIGTERM);
  EXPECT_EQ(child.wait().exit_code, 137);
  EXPECT_GE(now_seconds() - sent, 1);
  EXPECT_LT(now_seconds() - sent, 3);
  EXPECT_TRUE(wait_until_gone(groups, 1));
}

TEST(Signals, TheSecondCtrlCKillsAtOnce) {
  const TemporaryFolder folder;
  Child child({kKolorun, "-np", "2", "--grace", "20", "/bin/sh", "-c", kStayAlive},
              {.environment = {{"D", folder.path()}}, .raw_environment = {}});
  const std::vector<pid_t> groups = read_pids(folder, 2);
  child.signal(SIGINT);
  sleep_seconds(0.2);
  const double sent = now_seconds();
  child.signal(SIGINT);
  EXPECT_EQ(child.wait().exit_code, 130);
  EXPECT_LT(now_seconds() - sent, 1);
  EXPECT_TRUE(wait_until_gone(groups, 1));
}

TEST(Signals, AStoppedRankEndsToo) {
  const Outcome outcome = shell(2,
                                "if [ $RANK = 1 ]; then kill -STOP $$; sleep 60; fi; "
                                "sleep 0.3; exit 4");
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_LT(outcome.seconds, 1.5);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1"));
}

}  // namespace
}  // namespace kolo::test
