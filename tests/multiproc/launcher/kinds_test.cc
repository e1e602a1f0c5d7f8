// The truth table of exit codes: what each kind of end makes kolorun end with, and that nothing of
// the job is left, 500 times each with KOLO_TEST_LONG=1. Other kinds of ends, as often: S43 and S45
// in hygiene_test.cc, S48 in terminal_test.cc, failures under load in blame_test.cc.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <fstream>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

const std::string kKolorun = KOLO_KOLORUN;

struct Kind {
  const char* name;
  int exit_code;
  // HERE, else the start, is where a rank counts as being there.
  std::string script;                       // of three ranks; $D is a folder of this launch's own
  std::vector<int> signals = {};            // to kolorun, 50 ms apart, once all ranks are there
  std::vector<std::string> arguments = {};  // instead of ranks with a script
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

constexpr const char* kObedient = "exec sleep 60";
constexpr const char* kDeaf = "trap '' TERM INT HUP; HERE; sleep 60 & while :; do sleep 1; done";

const Kind kKinds[] = {
    {"AllSucceed", 0, "exit 0"},
    {"AllFailAlike", 7, "exit 7"},
    {"OneFails", 5, "[ $RANK != 1 ] || exit 5"},
    {"OneFailsWhileOthersWork", 255, "[ $RANK = 1 ] || sleep 60; exit 255"},
    {"OneIsKilled", 137, "[ $RANK = 2 ] && kill -9 $$; sleep 60"},
    {"OneCrashes", 139, "[ $RANK = 2 ] && kill -SEGV $$; sleep 60"},
    {"OneIsTerminated", 143, "[ $RANK = 0 ] && kill -TERM $$; sleep 60"},
    {"TheFirstInTime", 5,
     "[ $RANK = 1 ] && exit 5; until read first <$D/1; do sleep 0.01; done 2>/dev/null; "
     "until grep -q ') Z' /proc/$first/stat; do sleep 0.01; done; exit 7"},
    {"AfterOthersSuccess", 4, "[ $RANK = 2 ] && { sleep 0.3; exit 4; }; exit 0"},
    {"OthersEndByTheirOwnCode", 3, "[ $RANK = 0 ] && exit 3; trap 'exit 8' TERM; sleep 60 & wait"},
    {"OthersAreDeaf", 6, "[ $RANK = 0 ] && { sleep 0.1; exit 6; }; " + std::string(kDeaf)},
    {"HelpersAfterSuccess", 0, "sleep 60 & (sleep 60 &); exit 0"},
    {"HelpersAfterAFailure", 9, "sleep 60 & (sleep 60 &); [ $RANK = 1 ] && exit 9; sleep 60"},
    {"CtrlC", 130, kObedient, {SIGINT}},
    {"CtrlCOfDeafRanks", 130, kDeaf, {SIGINT}},
    {"CtrlCTwiceOfDeafRanks", 130, kDeaf, {SIGINT, SIGINT}},
    {"CtrlCOfRanksThatEndWell", 0, "trap 'exit 0' INT; HERE; sleep 60 & wait", {SIGINT}},
    {"SigtermToKolorun", 143, kObedient, {SIGTERM}},
    {"SigtermOfDeafRanks", 137, kDeaf, {SIGTERM}},
    {"SighupToKolorun", 129, kObedient, {SIGHUP}},
    {"KillOfKolorun", 137, kObedient, {SIGKILL}},
    {"KillOfKolorunWithDeafRanks", 137, kDeaf, {SIGKILL}},
    {"BadUsage", 2, "", {}, {"-np", "x", "/bin/true"}},
    {"NoProgram", 2, "", {}, {"-np", "2"}},
    {"NoAgent", 125, "", {}, {"-H", "odd:2", "--launcher-exec", "/bin/false", "/bin/true"}},
    {"NotExecutable", 126, "", {}, {"-np", "2", "/etc/passwd"}},
    {"NotFound", 127, "", {}, {"-np", "2", "no-such-program-anywhere"}},
};

class ExitCode : public ::testing::TestWithParam<Kind> {};

// From HERE on, or from its start, a rank counts as being there.
std::string marked(const std::string& script) {
  const std::string mark = "echo $$ >$D/$RANK";
  const std::size_t here = script.find("HERE");
  if (here == std::string::npos) return mark + "; " + script;
  return script.substr(0, here) + mark + script.substr(here + 4);
}

Outcome launch(const Kind& kind, const TemporaryFolder& folder) {
  std::vector<std::string> arguments = kind.arguments;
  if (arguments.empty()) {
    const std::string script = "ulimit -c 0; " + marked(kind.script);
    arguments = {"-np", "3", "--grace", "0.5", "/bin/sh", "-c", script};
  }
  arguments.insert(arguments.begin(), kKolorun);
  Child child(arguments, {.environment = {{"D", folder.path()}}, .raw_environment = {}});
  for (int rank = 0; rank < 3 && !kind.signals.empty(); ++rank) {
    EXPECT_TRUE(wait_for_file(folder / std::to_string(rank), 10)) << rank;
  }
  for (const int number : kind.signals) {
    sleep_seconds(0.05);  // so that the second does not melt into the first
    child.signal(number);
  }
  return child.wait();
}

TEST_P(ExitCode, AndNothingLeft) {
  const Kind& kind = GetParam();
  const int launches = long_tests() ? 500 : 2;
  const double start = now_seconds();
  for (int i = 0; i < launches; ++i) {
    const TemporaryFolder folder;
    const Outcome outcome = launch(kind, folder);
    ASSERT_EQ(outcome.exit_code, kind.exit_code) << "launch " << i << "\n" << outcome.err;
    ASSERT_LT(outcome.seconds, 10) << "launch " << i;
    ASSERT_EQ(outcome.err.empty(), kind.exit_code == 0 || kind.signals == std::vector{SIGKILL})
        << outcome.err;
    ASSERT_TRUE(wait_until_nobody_has("D=" + folder.path(), 1)) << "launch " << i;
  }
  std::printf("%s: %d of %d, %.1f s\n", kind.name, launches, launches, now_seconds() - start);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ExitCode, ::testing::ValuesIn(kKinds),
                         [](const auto& instance) { return std::string(instance.param.name); });

// What the test above looks with.
TEST(NothingLeft, WhoIsStillThereIsSeen) {
  const TemporaryFolder folder;
  const RunOptions options{.environment = {{"D", folder.path()}}, .raw_environment = {}};
  const std::string entry = "D=" + folder.path();
  EXPECT_TRUE(holders_of(entry).empty());
  {
    Child child({"/bin/sh", "-c", "setsid sleep 60 & echo $! >$D/daemon; sleep 60"}, options);
    ASSERT_TRUE(wait_for_file(folder / "daemon", 10));
    EXPECT_FALSE(wait_until_nobody_has(entry, 0.2));
  }
  const std::vector<pid_t> left = holders_of(entry);
  const pid_t daemon = std::atoi(read_file(folder / "daemon").c_str());
  EXPECT_EQ(left, std::vector<pid_t>{daemon});
  ::kill(daemon, SIGKILL);
  EXPECT_TRUE(wait_until_nobody_has(entry, 5));
}

}  // namespace
}  // namespace kolo::test
