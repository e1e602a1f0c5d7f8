// The environment of a rank, and the commands that start agents.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "launcher/rank_environment.h"
#include "launcher/remote_command.h"

namespace kolo::internal {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Placement two_hosts() { return {{{{"alpha", 2}, 0, 2}, {{"me@beta", 1}, 2, 1}}, 3}; }

TEST(RankEnvironment, IdentityInBothDialects) {
  const Environment e = rank_identity(two_hosts(), 1, 0, {"job", "secret"}, "10.0.0.2,fd00::2");
  for (const char* entry :
       {"KOLO_LAUNCHER=kolorun", "KOLO_RANK=2", "KOLO_SIZE=3", "KOLO_LOCAL_RANK=0",
        "KOLO_LOCAL_SIZE=1", "KOLO_HOST_INDEX=1", "KOLO_HOST_NAME=beta", "KOLO_HOST_COUNT=2",
        "KOLO_JOB=job", "KOLO_ADDRESSES=10.0.0.2,fd00::2", "RANK=2", "WORLD_SIZE=3", "LOCAL_RANK=0",
        "LOCAL_WORLD_SIZE=1"}) {
    EXPECT_THAT(e, Contains(entry));
  }
  EXPECT_THAT(
      meeting_variables("127.0.0.1:4242"),
      ElementsAre("KOLO_RENDEZVOUS=127.0.0.1:4242", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4242"));
}

TEST(RankEnvironment, LocalAgentsInheritAndRemoteOnesAreSentAllThatTravels) {
  const Environment own = {"PATH=/bin",   "HOME=/root", "SSH_TTY=x",
                           "A.B=1",       "EMPTY=",     "BASH_FUNC_f%%=() { :; }",
                           "KOLO_RANK=7", "broken"};
  LaunchOptions options;
  options.exports = {"HOME", "MISSING"};
  options.assignments = {{"PATH", "/mine"}};
  options.settings = {{"log_level", "debug"}};
  const SharedEnvironment local = shared_environment(own, options, false);
  EXPECT_THAT(local.entries, ElementsAre("HOME=/root", "KOLO_LOG_LEVEL=debug", "PATH=/mine"));
  EXPECT_THAT(local.unset, ElementsAre("MISSING"));
  const SharedEnvironment remote = shared_environment(own, options, true);
  EXPECT_THAT(remote.entries,
              ElementsAre("PATH=/mine", "A.B=1", "EMPTY=", "BASH_FUNC_f%%=() { :; }", "HOME=/root",
                          "KOLO_LOG_LEVEL=debug"));
  EXPECT_THAT(remote.left_out, ElementsAre("HOME", "SSH_TTY"));
}

TEST(RankEnvironment, ComposeOverlaysInOrderAndDropsAnOuterJob) {
  const Environment first = {"A=2", "C=3"};
  const Environment second = {"C=4"};
  EXPECT_THAT(
      compose({"A=1", "B=x=y", "KOLO_SECRET=old", "KOLO_SPIN_US=1", "junk"}, {&first, &second}),
      ElementsAre("A=2", "B=x=y", "KOLO_SPIN_US=1", "C=4"));
}

TEST(RankEnvironment, FindAndSet) {
  Environment e = {"AB=1", "A="};
  EXPECT_EQ(find_variable(e, "A"), "");
  EXPECT_EQ(find_variable(e, "AB"), "1");
  EXPECT_EQ(find_variable(e, "B"), std::nullopt);
  set_variable(e, "A", "x\ny");
  EXPECT_THAT(e, ElementsAre("AB=1", "A=x\ny"));
}

TEST(ShellQuote, PlainWordsStayPlain) {
  EXPECT_EQ(shell_quote("/usr/bin/kolorun-1.0_x"), "/usr/bin/kolorun-1.0_x");
  EXPECT_EQ(shell_quote(""), "''");
}

// The judge is a real shell.
TEST(ShellQuote, AShellReadsTheSameWord) {
  for (const std::string word :
       {"a b", "it's", "$(echo x)", "`echo x`", "a\"b", "\\", "*", "~", "a\nb", "-n", "#", "a;b",
        "'", "''", "!x", "\xff\xfe", "a&b|c>d"}) {
    const std::string command = "printf '%s.' " + shell_quote(word);
    FILE* shell = ::popen(command.c_str(), "r");
    ASSERT_NE(shell, nullptr);
    char buffer[64] = "";
    const std::size_t bytes = std::fread(buffer, 1, sizeof buffer, shell);
    ::pclose(shell);
    EXPECT_EQ(std::string(buffer, bytes), word + ".");
  }
}

TEST(AgentCommand, Ssh) {
  LaunchOptions options;
  options.ssh_port = "2222";
  options.ssh_identity = "/k";
  EXPECT_THAT(agent_command(Road::kSsh, {"me@a", 1}, options, "/opt/my kolo/kolorun"),
              ElementsAre("ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-p",
                          "2222", "-i", "/k", "me@a", "exec '/opt/my kolo/kolorun' --agent"));
}

TEST(AgentCommand, OtherPrograms) {
  LaunchOptions options;
  options.remote_command = {"ip", "netns", "exec"};
  EXPECT_THAT(agent_command(Road::kCommand, {"ns1", 1}, options, "/my kolo/kolorun"),
              ElementsAre("ip", "netns", "exec", "ns1", "/my kolo/kolorun", "--agent"));
  EXPECT_THAT(agent_command(Road::kFork, {"x", 1}, options, "/k"), ElementsAre("/k", "--agent"));
}

TEST(AgentCommand, WhichRoad) {
  LaunchOptions options;
  EXPECT_EQ(road_to({"localhost", 1}, options, "me"), Road::kFork);
  EXPECT_EQ(road_to({"me", 1}, options, "me"), Road::kFork);
  EXPECT_EQ(road_to({"other", 1}, options, "me"), Road::kSsh);
  options.remote = Remote::kSsh;
  EXPECT_EQ(road_to({"localhost", 1}, options, "me"), Road::kSsh);
  options.remote = Remote::kFork;
  EXPECT_EQ(road_to({"other", 1}, options, "me"), Road::kFork);
  options.remote = Remote::kAuto;
  options.remote_command = {"ip"};
  EXPECT_EQ(road_to({"localhost", 1}, options, "me"), Road::kFork);
  EXPECT_EQ(road_to({"me", 1}, options, "me"), Road::kCommand);  // a name space of this machine
}

}  // namespace
}  // namespace kolo::internal
