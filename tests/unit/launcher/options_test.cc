// The command line: every spelling, every refusal, and where kolorun's options end.
#include "launcher/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/flag_table.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Words = std::vector<std::string>;

LaunchOptions good(const Words& words) {
  auto options = parse_command_line(words);
  EXPECT_TRUE(options.is_ok()) << options.status().text();
  return options ? *options : LaunchOptions{};
}

std::string bad(const Words& words) {
  auto options = parse_command_line(words);
  EXPECT_FALSE(options.is_ok());
  return options ? "" : options.status().text();
}

TEST(Options, NumberOfRanksInEverySpelling) {
  for (const Words& words : {Words{"-n", "4"}, Words{"-np", "4"}, Words{"--num-proc", "4"},
                             Words{"-num-proc=4"}, Words{"--np=4"}, Words{"--num-p", "4"}}) {
    Words line = words;
    line.push_back("./prog");
    EXPECT_EQ(good(line).rank_count, 4) << words[0];
  }
  EXPECT_TRUE(good({"-np", "auto", "p"}).all_slots);
}

TEST(Options, RefusesOddNumbersOfRanks) {
  for (const char* number :
       {"0", "-1", "x", "", "4x", " 4", "4.0", "4097", "99999999999999999999"}) {
    EXPECT_THAT(bad({"-np", number, "p"}), HasSubstr("not '" + std::string(number) + "'"));
  }
  EXPECT_THAT(bad({"-np"}), HasSubstr("-np wants a value"));
}

TEST(Options, ProgramArgumentsAreNeverParsed) {
  const LaunchOptions options = good({"-np", "2", "./prog", "-np", "3", "--help", "-x", "A=1"});
  EXPECT_EQ(options.rank_count, 2);
  EXPECT_EQ(options.action, Action::kRun);
  EXPECT_TRUE(options.assignments.empty());
  EXPECT_THAT(options.program, ElementsAre("./prog", "-np", "3", "--help", "-x", "A=1"));
  EXPECT_THAT(good({"-np", "2", "--", "-odd-name", "a"}).program, ElementsAre("-odd-name", "a"));
}

TEST(Options, NeedsAProgram) {
  EXPECT_THAT(bad({}), HasSubstr("no program"));
  EXPECT_THAT(bad({"-np", "2"}), HasSubstr("no program"));
  EXPECT_THAT(bad({"-np", "2", "--"}), HasSubstr("no program"));
}

TEST(Options, UnknownAmbiguousAndTooMuch) {
  EXPECT_THAT(bad({"--no-such-thing", "p"}), HasSubstr("unknown option '--no-such-thing'"));
  EXPECT_THAT(bad({"--ver", "p"}), HasSubstr("could be any of --verbose --version"));
  EXPECT_THAT(bad({"--verbose=3", "p"}), HasSubstr("takes no value"));
  EXPECT_THAT(bad({"--verb=3", "p"}), HasSubstr("takes no value"));
  EXPECT_THAT(bad({"-H", "a", "--hostfile", "b", "p"}), HasSubstr("both name hosts"));
}

TEST(Options, Environment) {
  const LaunchOptions options =
      good({"-x", "PATH", "-x", "A=b=c", "-x", "E=", "-genv", "V", "-w 1", "p"});
  EXPECT_THAT(options.exports, ElementsAre("PATH"));
  EXPECT_THAT(options.assignments, ElementsAre(Pair("A", "b=c"), Pair("E", ""), Pair("V", "-w 1")));
  EXPECT_THAT(bad({"-x", "=1", "p"}), HasSubstr("-x wants"));
  EXPECT_THAT(bad({"-genv", "V"}), HasSubstr("two words"));
  EXPECT_THAT(bad({"-genv", "A=1", "2", "p"}), HasSubstr("no name"));
}

TEST(Options, TuningFlagsOfHorovodrunBecomeOptions) {
  const LaunchOptions options =
      good({"--fusion-threshold-mb", "32", "--cache-capacity", "100", "--log-level", "TRACE",
            "--stall-check-warning-time-seconds", "2", "--stall-check-shutdown-time-seconds", "0.5",
            "--timeline-filename", "/t", "--algorithm", "ring", "--start-timeout", "10", "p"});
  EXPECT_THAT(options.settings,
              ElementsAre(Pair("fusion_threshold_bytes", "33554432"), Pair("cache_capacity", "100"),
                          Pair("log_level", "debug"), Pair("stall_warning_ms", "2000"),
                          Pair("stall_abort_ms", "500"), Pair("timeline", "/t"),
                          Pair("algorithm", "ring"), Pair("start_timeout_ms", "10000")));
  EXPECT_EQ(options.start_timeout, Nanos(10s));
  EXPECT_THAT(good({"--no-stall-check", "p"}).settings,
              ElementsAre(Pair("stall_warning_ms", "0"), Pair("stall_abort_ms", "0")));
  EXPECT_THAT(bad({"--algorithm", "warp", "p"}), HasSubstr("warp"));
  EXPECT_THAT(bad({"--fusion-threshold-mb", "-1", "p"}), HasSubstr("MiB"));
  EXPECT_THAT(bad({"--start-timeout", "soon", "p"}), HasSubstr("seconds"));
}

// In the words of the command line: its flags, their units.
TEST(Options, ValuesOutOfBoundsAreToldInTheFlagsOwnUnit) {
  EXPECT_EQ(bad({"--peer-timeout-seconds", "0.1", "p"}),
            "--peer-timeout-seconds wants from 0.5 to 604800 seconds, not '0.1'");
  EXPECT_EQ(bad({"--start-timeout", "0", "p"}),
            "--start-timeout wants from 0.001 to 604800 seconds, not '0'");
  EXPECT_EQ(bad({"--cache-capacity", "0", "p"}),
            "--cache-capacity wants a whole number from 1 to 1048576, not '0'");
  EXPECT_EQ(bad({"--algorithm", "warp", "p"}),
            "--algorithm wants one of: auto oneshot direct ring, not 'warp'");
  for (const Words& words :
       {Words{"--stall-check-warning-time-seconds", "800000"},
        Words{"--stall-check-shutdown-time-seconds", "800000"}, Words{"--transport", "pigeon"},
        Words{"--log-level", "loud"}, Words{"--cache-capacity", "x"}}) {
    Words line = words;
    line.push_back("p");
    EXPECT_THAT(bad(line),
                AllOf(HasSubstr(words[0] + " wants"), HasSubstr(words[1]),
                      ::testing::Not(HasSubstr("config_set")), ::testing::Not(HasSubstr("_ms"))));
  }
}

TEST(Options, WhatHasNoEffectIsAcceptedWithOneLine) {
  for (const Words& words :
       {Words{"--cycle-time-ms", "5"}, Words{"--gloo"}, Words{"--mpi"}, Words{"--autotune"},
        Words{"--no-autotune"}, Words{"--hierarchical-allreduce"},
        Words{"--no-hierarchical-allreduce"}, Words{"--hierarchical-allgather"},
        Words{"--no-hierarchical-allgather"}, Words{"--oversubscribe"}, Words{"--bind-to", "core"},
        Words{"--map-by", "slot"}, Words{"--allow-run-as-root"}}) {
    Words line = words;
    line.push_back("p");
    const LaunchOptions options = good(line);
    EXPECT_THAT(options.notes, ElementsAre(HasSubstr(words[0] + " has no effect: "))) << words[0];
    EXPECT_TRUE(options.settings.empty());
    EXPECT_THAT(options.program, ElementsAre("p"));
  }
  EXPECT_THAT(good({"-bind-to=core", "--mpi", "p"}).notes,
              ElementsAre(HasSubstr("--bind-to has"), HasSubstr("--mpi has")));
  EXPECT_TRUE(good({"--stall-check", "-np", "2", "p"}).notes.empty());
}

TEST(Options, NamesFromOtherLaunchers) {
  const LaunchOptions options =
      good({"-env", "A", "1", "--nics", "eth0", "--disable-cache", "--tag-output", "p"});
  EXPECT_THAT(options.assignments, ElementsAre(Pair("A", "1")));
  EXPECT_EQ(options.interfaces, "eth0");
  EXPECT_THAT(options.settings, ElementsAre(Pair("cache_capacity", "1")));
  EXPECT_EQ(options.label, Label::kRank);
  EXPECT_TRUE(options.notes.empty());
  EXPECT_THAT(bad({"-env", "A=1", "2", "p"}), HasSubstr("-env"));
}

TEST(Options, SeveralProgramsAreRefusedButAColonIsNot) {
  for (const char* next : {"-np", "-n", "--np", "-host", "--hosts", "-x", "-genv"}) {
    EXPECT_THAT(bad({"-np", "1", "a", "b", ":", next, "1", "c"}),
                HasSubstr("': " + std::string(next) + "': several programs"));
    EXPECT_EQ(good({"-np", "1", "--", "a", "b", ":", next, "1", "c"}).program.size(), 6u);
  }
  EXPECT_THAT(good({"a", ":", "-odd", ":"}).program, ElementsAre("a", ":", "-odd", ":"));
  EXPECT_THAT(good({"a", ":", "b", "-np"}).program, ElementsAre("a", ":", "b", "-np"));
  EXPECT_THAT(good({"a", "b:", "-np"}).program, ElementsAre("a", "b:", "-np"));
}

TEST(Options, LabelsAndGrace) {
  EXPECT_EQ(good({"p"}).label, Label::kRank);
  EXPECT_EQ(good({"-l", "p"}).label, Label::kRank);
  EXPECT_EQ(good({"--label=none", "p"}).label, Label::kNone);
  EXPECT_EQ(good({"--label=stream", "p"}).label, Label::kStream);
  EXPECT_THAT(bad({"--label=loud", "p"}), HasSubstr("loud"));
  EXPECT_EQ(good({"p"}).grace, Nanos(10s));
  EXPECT_EQ(good({"--grace", "0.5", "p"}).grace, Nanos(500ms));
  EXPECT_THAT(bad({"--grace", "-1", "p"}), HasSubstr("--grace"));
}

TEST(Options, LauncherExecIsSplitIntoWords) {
  EXPECT_THAT(good({"--launcher-exec", "ip netns exec", "p"}).remote_command,
              ElementsAre("ip", "netns", "exec"));
  EXPECT_THAT(good({"--launcher-exec", "a 'b  c' \"d\\\"\" \\ e ''", "p"}).remote_command,
              ElementsAre("a", "b  c", "d\"", " e", ""));
  EXPECT_THAT(bad({"--launcher-exec", "a 'b", "p"}), HasSubstr("not closed"));
  EXPECT_THAT(bad({"--launcher-exec", "a \\", "p"}), HasSubstr("backslash"));
  EXPECT_THAT(bad({"--launcher-exec", " ", "p"}), HasSubstr("wants a command"));
  EXPECT_THAT(bad({"--launcher", "slurm", "p"}), HasSubstr("ssh and fork"));
}

TEST(Options, InformationNeedsNoProgram) {
  EXPECT_EQ(good({"--help"}).action, Action::kHelp);
  EXPECT_EQ(good({"-h"}).action, Action::kHelp);
  EXPECT_EQ(good({"--version"}).action, Action::kVersion);
  EXPECT_EQ(good({"-cb"}).action, Action::kCheckBuild);
  EXPECT_EQ(good({"--agent"}).action, Action::kAgent);
}

TEST(Options, HelpShowsEveryFlagThatHasHelpWithinEightyColumns) {
  const std::string help = help_text();
  for (const FlagRow& row : flag_table()) {
    if (row.help.empty()) continue;
    EXPECT_THAT(help, HasSubstr(std::string(row.names.substr(0, row.names.find('|')))));
    EXPECT_THAT(help, HasSubstr(std::string(row.help)));
  }
  EXPECT_THAT(help, HasSubstr("Ranks get empty standard input."));
  EXPECT_THAT(help, HasSubstr("the others have 0.3 s to report"));
  EXPECT_THAT(help, ::testing::Not(HasSubstr("--agent\n")));
  for (std::size_t at = 0; at < help.size();) {
    const std::size_t end = help.find('\n', at);
    EXPECT_LE(end - at, 80u) << help.substr(at, end - at);
    at = end + 1;
  }
}

}  // namespace
}  // namespace kolo::internal
