// Bad usage, missing programs and hosts: one clear line, at once, and nothing started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::string kKolorun = KOLO_KOLORUN;

// No program; one that does not exist; one without execute permission; -np 0; -np -1; -np x;
// unknown option.
TEST(S46, BadUsageIsOneLineAndNothingStarts) {
  const TemporaryFolder folder;
  const std::string mark = folder / "started";
  const std::string touch = folder.script("touch.sh", "echo >" + mark + "\n");
  std::ofstream(folder / "plain") << "#!/bin/sh\necho >" << mark << "\n";
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    const char* says;
  };
  for (const Case& c : std::initializer_list<Case>{
           {{}, 2, "no program"},
           {{"-np", "2"}, 2, "no program"},
           {{"-np", "2", "no-such-program-anywhere"}, 127, "'no-such-program-anywhere'"},
           {{"-np", "2", folder / "missing"}, 127, "does not exist"},
           {{"-np", "2", folder / "plain"}, 126, "not executable"},
           {{"-np", "2", folder.path()}, 126, "is a directory"},
           {{"-np", "2", "--peer-timeout-seconds", "0.1", touch}, 2, "0.5 to 604800 seconds"},
           {{"-np", "0", touch}, 2, "'0'"},
           {{"-np", "-1", touch}, 2, "'-1'"},
           {{"-np", "x", touch}, 2, "'x'"},
           {{"--no-such-option", "-np", "2", touch}, 2, "'--no-such-option'"},
           {{"-np", "3", "-H", "localhost:2", touch}, 2, "slots"},
           {{"-H", "fd00::1:2", touch}, 2, "brackets"},
           {{"--hostfile", folder / "missing", touch}, 2, "hostfile"},
           {{"--hostfile", folder.path(), touch}, 2, "hostfile"},
           {{"-np", "1", touch, ":", "-np", "1", touch}, 2, "several programs"},
           {{"-np", "2", "-H", "localhost:1", touch}, 2, "the 1 slot of"},
           {{"-np", "2", "--algorithm", "warp", touch}, 2, "warp"},
           {{"-np", "2", "--wdir", folder / "missing", touch}, 2, "--wdir"}}) {
    std::vector<std::string> arguments = c.arguments;
    arguments.insert(arguments.begin(), kKolorun);
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, c.exit_code) << c.says << outcome.err;
    EXPECT_EQ(outcome.out, "");
    ASSERT_EQ(lines_of(outcome.err).size(), 1u) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(::testing::StartsWith("kolorun: "), HasSubstr(c.says)));
    EXPECT_TRUE(read_file(mark).empty()) << c.says;
  }
  EXPECT_EQ(run({kKolorun, "-np", "1", touch}).exit_code, 0);  // the mark would have been seen
  EXPECT_FALSE(read_file(mark).empty());
}

TEST(Hosts, AMissingSshIsNamedWithItsCure) {
  const TemporaryFolder folder;
  const Outcome outcome = run({kKolorun, "-H", "other:1", "/bin/true"},
                              {.environment = {{"PATH", folder.path()}}, .raw_environment = {}});
  EXPECT_EQ(outcome.exit_code, 125);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("host other"), HasSubstr("'ssh'"), HasSubstr("openssh-client")));
}

TEST(Hosts, AnSshThatFailsIsQuotedWithHostAndCure) {
  const TemporaryFolder folder;
  folder.script("ssh", "echo \"ssh: Could not resolve hostname nowhere\" >&2; exit 255\n");
  const Outcome outcome =
      run({kKolorun, "-np", "2", "-H", "localhost:1,nowhere:1", "/bin/sleep", "60"},
          {.environment = {{"PATH", folder.path() + ":/usr/bin:/bin"}}, .raw_environment = {}});
  EXPECT_EQ(outcome.exit_code, 125);
  EXPECT_LT(outcome.seconds, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("host nowhere"), HasSubstr("exit code 255"),
                                 HasSubstr("Could not resolve"), HasSubstr("without a password")));
}

TEST(Hosts, AnAgentThatNeverAnswersIsNamedAfterTheStartTimeout) {
  const TemporaryFolder folder;
  const std::string silent = folder.script("silent", "exec sleep 60\n");
  const Outcome outcome = run(
      {kKolorun, "-H", "tomb:1", "--start-timeout", "1", "--launcher-exec", silent, "/bin/true"});
  EXPECT_EQ(outcome.exit_code, 125);
  EXPECT_GE(outcome.seconds, 1);
  EXPECT_LT(outcome.seconds, 4);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("tomb"), HasSubstr("--start-timeout")));
}

TEST(Hosts, SomethingElseThanAnAgent) {
  const Outcome outcome = run({kKolorun, "-H", "odd:1", "--start-timeout", "5", "--launcher-exec",
                               "/bin/echo", "/bin/true"});
  EXPECT_EQ(outcome.exit_code, 125);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("no agent starts on host odd"), HasSubstr("--launcher-exec")));
}

TEST(Hosts, AProgramMissingThereOnly) {
  const TemporaryFolder folder;
  const std::string rsh = folder.script("rsh", "shift; exec \"$@\"\n");
  const Outcome outcome = run({kKolorun, "-H", "far:2", "--launcher-exec", rsh, "./not-there"});
  EXPECT_EQ(outcome.exit_code, 127);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("far"), HasSubstr("./not-there")));
}

TEST(Hosts, ADirectoryOrAPlainFileThereIsNotExecutable) {
  const TemporaryFolder folder;
  const std::string rsh = folder.script("rsh", "shift; exec \"$@\"\n");
  std::ofstream(folder / "plain") << "text\n";
  for (const auto& [name, says] : std::initializer_list<std::pair<std::string, const char*>>{
           {folder.path(), "is a directory"}, {folder / "plain", "chmod +x"}}) {
    const Outcome outcome = run({kKolorun, "-H", "far:1", "--launcher-exec", rsh, name});
    EXPECT_EQ(outcome.exit_code, 126);
    EXPECT_EQ(lines_of(outcome.err).size(), 1u) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("far"), HasSubstr(says)));
  }
}

TEST(Port, ABusyRendezvousPortIsNamed) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const Outcome outcome =
      run({kKolorun, "-np", "2", "--rendezvous-port", port, "/bin/sleep", "60"});
  ::close(fd);
  EXPECT_EQ(outcome.exit_code, 125);
  EXPECT_LT(outcome.seconds, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("127.0.0.1:" + port), HasSubstr("--rendezvous-port"),
                                 HasSubstr("localhost")));
}

TEST(Information, HelpVersionAndBuild) {
  const Outcome help = run({kKolorun, "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("-np"), HasSubstr("Examples")));
  EXPECT_EQ(help.err, "");
  EXPECT_THAT(run({kKolorun, "--version"}).out, ::testing::StartsWith("kolorun 0."));
  EXPECT_THAT(run({kKolorun, "--check-build"}).out,
              AllOf(HasSubstr("tcp"), HasSubstr("ring"), HasSubstr("bf16"), HasSubstr("protobuf"),
                    HasSubstr("boost")));
  // As the library beside it says: a version and a path, or the cure.
  EXPECT_THAT(run({kKolorun, "--check-build"}).out,
              AllOf(ContainsRegex("cuda +([0-9]+\\.[0-9]+, /|no: .*KOLO_)"),
                    ContainsRegex("nccl +([0-9]+\\.[0-9]+\\.[0-9]+, /|no: .*KOLO_)")));
}

}  // namespace
}  // namespace kolo::test
