// Output, input and environment of ranks, and the roads to other hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kKolorun = KOLO_KOLORUN;
const std::string kProbe = KOLO_PROBE;

// What probe's "pieces" writes.
std::string line_text(int rank, int stream, int i) {
  std::string line = std::to_string(i) + ":";
  const auto length = static_cast<std::size_t>((i * 7919 + rank * 31 + stream) % 200 + 1);
  while (line.size() < length) {
    line += static_cast<char>('a' + (rank + stream + i + static_cast<int>(line.size())) % 26);
  }
  return line;
}

// Every line is the next one of the rank and stream that its label names; nothing is missing.
void check_lines(const std::string& text, int lines, int streams) {
  std::map<std::string, int> next;
  for (const std::string& line : lines_of(text)) {
    const std::size_t blank = line.find(' ');
    ASSERT_NE(blank, std::string::npos) << line;
    const std::string label = line.substr(0, blank);
    const int rank = label[1] - '0';
    const int stream = label.find("stderr") == std::string::npos ? 0 : 1;
    ASSERT_EQ(line.substr(blank + 1), line_text(rank, stream, next[label])) << label;
    ++next[label];
  }
  ASSERT_EQ(next.size(), static_cast<std::size_t>(4 * streams));
  for (const auto& [label, count] : next) EXPECT_EQ(count, lines) << label;
}

// S47 with fewer lines unless the long tests are asked for.
TEST(S47, LinesStayWholeAndNothingIsLost) {
  const int lines = long_tests() ? 100000 : 3000;
  const std::vector<std::string> command = {
      kKolorun, "-np", "4", "--label=stream", kProbe, "pieces", std::to_string(lines)};
  const Outcome apart =
      run(command, {.timeout_seconds = 240, .environment = {}, .raw_environment = {}});
  EXPECT_EQ(apart.exit_code, 0);
  check_lines(apart.out, lines, 1);
  check_lines(apart.err, lines, 1);
  const Outcome merged = run(
      command, {.timeout_seconds = 240, .environment = {}, .raw_environment = {}, .merge = true});
  EXPECT_EQ(merged.exit_code, 0);
  check_lines(merged.out, lines, 2);
}

TEST(Output, ASlowReaderHoldsRanksBackAndLosesNothing) {
  Child child({kKolorun, "-np", "2", "/bin/sh", "-c",
               "head -c 20000000 /dev/zero | tr '\\0' x | "
               "fold -w 99; echo; echo end"},
              {.timeout_seconds = 60, .environment = {}, .raw_environment = {}});
  sleep_seconds(0.5);  // all queues are full by now
  const Outcome outcome = child.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), 'x'), 40000000);
  for (const char* line : {"\n[0] end\n", "\n[1] end\n"}) {
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line;
  }
}

TEST(Output, LastLinesWithoutNewlineAndLabels) {
  EXPECT_EQ(run({kKolorun, "-np", "1", "/bin/sh", "-c", "printf 'a\\nb'"}).out, "[0] a\n[0] b\n");
  EXPECT_EQ(run({kKolorun, "-np", "1", "--label=none", "/bin/sh", "-c", "printf 'a\\nb'"}).out,
            "a\nb");
  const std::string err =
      run({kKolorun, "-np", "1", "--label=stream", "/bin/sh", "-c", "echo a >&2"}).err;
  EXPECT_EQ(err, "[0]<stderr> a\n");
}

TEST(Output, FilesPerRank) {
  const TemporaryFolder folder;
  const Outcome outcome = run({kKolorun, "-np", "2", "--output-filename", folder / "logs",
                               "/bin/sh", "-c", "printf out$RANK; echo err$RANK >&2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(read_file(folder / "logs/rank.0/stdout"), "out0");
  EXPECT_EQ(read_file(folder / "logs/rank.1/stderr"), "err1\n");
  const Outcome refused =
      run({kKolorun, "-np", "1", "--output-filename", "/dev/null/x", "/bin/true"});
  EXPECT_EQ(refused.exit_code, 125);
  EXPECT_THAT(refused.err, HasSubstr("/dev/null/x"));
}

TEST(Output, AClosedStdoutEndsTheJob) {
  const Outcome outcome = run({"/bin/sh", "-c",
                               kKolorun + " -np 2 sh -c 'while echo y; do "
                                          "sleep 0.01; done' | head -n 1"});
  EXPECT_EQ(lines_of(outcome.out).size(), 1u);
  EXPECT_LT(outcome.seconds, 5);
}

TEST(Input, RanksReadNothingAndALoopKeepsItsLines) {
  const Outcome loop =
      run({"/bin/sh", "-c",
           "printf 'a\\nb\\nc\\n' | while read x; do " + kKolorun + " -np 2 cat; echo $x; done"});
  EXPECT_EQ(loop.out, "a\nb\nc\n") << loop.err;
  const Outcome closed = run({kKolorun, "-np", "2", "/bin/sh", "-c", "cat; echo ok"},
                             {.environment = {}, .raw_environment = {}, .close_stdin = true});
  EXPECT_EQ(closed.exit_code, 0) << closed.err;
  EXPECT_THAT(closed.out, AllOf(HasSubstr("[0] ok"), HasSubstr("[1] ok")));
}

std::set<std::string> entries_of(const std::string& text) {
  std::set<std::string> entries;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\0', at);
    entries.insert(text.substr(at, end - at));
    at = end + 1;
  }
  return entries;
}

// S49: an exported function, odd names and values; by a local agent, ssh and another command.
TEST(S49, TheEnvironmentArrivesByteEqual) {
  for (const std::string road : {"local", "ssh", "command"}) {
    const TemporaryFolder folder;
    const std::vector<std::string> odd = {"BASH_FUNC_greet%%=() {  echo hello\n}",
                                          "A.B=1",
                                          "NEWLINE=a\nb\n",
                                          "QUOTES=\"'`\\",
                                          "COMMAND=$(touch " + (folder / "executed") + ")",
                                          "BYTES=\xff\xfe\x80",
                                          "EMPTY=",
                                          "EQ=a=b"};
    folder.script("ssh", "for last; do :; done; exec sh -c \"$last\"\n");
    const std::string rsh = folder.script("rsh", "shift; exec \"$@\"\n");
    std::vector<std::string> command = {kKolorun, "-np", "2", "-x", "WITH=v 'w' $x"};
    if (road == "local")
      command.insert(command.end(), {"-H", "localhost:2"});
    else
      command.insert(command.end(), {"-H", "far:2"});
    if (road == "command") command.insert(command.end(), {"--launcher-exec", rsh});
    command.insert(command.end(), {kProbe, "environment", folder.path()});
    const Outcome outcome =
        run(command,
            {.environment = {{"PATH", folder.path() + ":/usr/bin:/bin"}}, .raw_environment = odd});
    ASSERT_EQ(outcome.exit_code, 0) << road << outcome.err;
    for (const char* rank : {"0", "1"}) {
      const std::set<std::string> arrived = entries_of(read_file(folder / rank));
      for (const std::string& entry : odd) EXPECT_THAT(arrived, Contains(entry)) << road;
      EXPECT_THAT(arrived, Contains("WITH=v 'w' $x")) << road;
      EXPECT_THAT(arrived, Contains("RANK=" + std::string(rank)));
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "executed")) << road;
  }
}

// A stand-in for ssh: keeps its words and its input, and runs the command as a remote shell would.
std::string ssh_script(const TemporaryFolder& folder) {
  return "printf '%s\\n' \"$@\" >" + folder.path() +
         "/arguments; for last; do :; done; "
         "tee " +
         folder.path() + "/input | sh -c \"$last\"\n";
}

TEST(Ssh, TheSecretTravelsInTheInputAndNeverInArguments) {
  const TemporaryFolder folder;
  folder.script("ssh", ssh_script(folder));
  const std::string rank =
      folder.script("rank",
                    "echo \"secret $KOLO_SECRET\"\n"
                    "case \"$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ')\" in\n"
                    "  *$KOLO_SECRET*) echo leaked;;\nesac\n");
  const Outcome outcome =
      run({kKolorun, "-H", "me@far:1", "-p", "2222", "--label=none", rank},
          {.environment = {{"PATH", folder.path() + ":/usr/bin:/bin"}}, .raw_environment = {}});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  ASSERT_EQ(outcome.out.substr(0, 7), "secret ");
  const std::string secret = outcome.out.substr(7, 64);
  EXPECT_EQ(secret.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_THAT(outcome.out, Not(HasSubstr("leaked")));
  const std::string arguments = read_file(folder / "arguments");
  EXPECT_THAT(lines_of(arguments),
              ::testing::ElementsAre("-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15",
                                     "-p", "2222", "me@far", HasSubstr("kolorun --agent")));
  EXPECT_THAT(arguments, Not(HasSubstr(secret)));
  EXPECT_THAT(read_file(folder / "input"), HasSubstr(secret));
}

TEST(Ssh, ATalkativeLoginShellDoesNoHarm) {
  const TemporaryFolder folder;
  folder.script("ssh",
                "echo 'Welcome to far!'; echo 'motd' >&2; for last; do :; done; "
                "exec sh -c \"$last\"\n");
  const Outcome outcome =
      run({kKolorun, "-H", "far:1", "/bin/echo", "ok"},
          {.environment = {{"PATH", folder.path() + ":/usr/bin:/bin"}}, .raw_environment = {}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "[0] ok\n");
}

TEST(LauncherExec, TwoHostsOnOneMachineMeet) {
  const TemporaryFolder folder;
  const std::string rsh =
      folder.script("rsh", "echo \"$@\" >>" + folder.path() + "/calls; shift; exec \"$@\"\n");
  const Outcome outcome =
      run({kKolorun, "-H", "a:2,b:1", "--launcher-exec", rsh, "--network-interfaces", "lo",
           "/bin/sh", "-c",
           "echo $KOLO_RANK/$KOLO_SIZE $KOLO_LOCAL_RANK/$KOLO_LOCAL_SIZE $KOLO_HOST_INDEX "
           "$KOLO_HOST_NAME; exec " +
               kProbe + " join exit 0"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<std::string> lines = lines_of(outcome.out);
  EXPECT_THAT(lines, ::testing::UnorderedElementsAre("[0] 0/3 0/2 0 a", "[1] 1/3 1/2 0 a",
                                                     "[2] 2/3 0/1 1 b"));
  const std::vector<std::string> calls = lines_of(read_file(folder / "calls"));
  EXPECT_THAT(calls,
              ::testing::UnorderedElementsAre(
                  AllOf(::testing::StartsWith("a "), ::testing::EndsWith("kolorun --agent")),
                  AllOf(::testing::StartsWith("b "), ::testing::EndsWith("kolorun --agent"))));
}

TEST(Meeting, MissingRanksAreNamedOnAllAfterTheStartTimeout) {
  const Outcome outcome = run({kKolorun, "-np", "3", "--start-timeout", "1", "/bin/sh", "-c",
                               "[ $RANK = 1 ] && exec sleep 20; exec " + kProbe + " join exit 0"});
  EXPECT_EQ(outcome.exit_code, 102) << outcome.err;
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_THAT(outcome.err, HasSubstr("missing rank 1 of 3"));
}

TEST(Jobs, TwentyAtOnceDoNotMeetEachOther) {
  const int rounds = long_tests() ? 10 : 1;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::unique_ptr<Child>> jobs;
    for (int i = 0; i < 20; ++i) {
      jobs.push_back(std::make_unique<Child>(
          std::vector<std::string>{kKolorun, "-np", "2", kProbe, "join", "exit", "0"},
          RunOptions{.environment = {}, .raw_environment = {}}));
    }
    for (const auto& job : jobs) {
      const Outcome outcome = job->wait();
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    }
  }
}

}  // namespace
}  // namespace kolo::test
