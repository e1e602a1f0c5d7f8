// Agents on other hosts: signals reach their ranks in time, and their end is that of their ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <set>

#include "tests/multihost/hosts.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;

class Agents : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string obstacle = Hosts::obstacle();
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  }
};

double seconds_of(const timespec& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// 2 ranks in 2 namespaces, each with a SIGTERM handler that writes a time stamp; SIGTERM to the
// launcher.
TEST_F(Agents, S44) {
  const Hosts hosts(2);
  for (int round = 0; round < (long_tests() ? 100 : 3); ++round) {
    const TemporaryFolder folder;
    Child child(hosts.command({1, 1}, {KOLO_PROBE, "stamp", folder.path()}), {});
    for (const char* name : {"0.ready", "1.ready"}) ASSERT_TRUE(wait_for_file(folder / name, 20));
    timespec sent{};
    ::clock_gettime(CLOCK_MONOTONIC, &sent);
    child.signal(SIGTERM);
    const Outcome outcome = child.wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;  // so nobody was killed
    for (const char* name : {"0.stamp", "1.stamp"}) {
      const std::string bytes = read_file(folder / name);
      timespec came{};
      ASSERT_EQ(bytes.size(), sizeof came) << name;
      std::memcpy(&came, bytes.data(), sizeof came);
      EXPECT_LE(seconds_of(came) - seconds_of(sent), 0.2) << name;
    }
  }
}

std::set<std::string> shared_memory_names() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename());
  }
  return names;
}

// 3 ranks on 2 hosts, during steps: kill -9 of kolorun, then of the remote agent only.
TEST_F(Agents, S45) {
  const Hosts hosts(2);
  const auto before = shared_memory_names();
  for (int round = 0; round < (long_tests() ? 100 : 4); ++round) {
    const bool agent = round % 2 == 1;
    const TemporaryFolder folder;
    const std::string enter =
        folder.script("enter", "echo $$ >" + folder.path() + "/agent.$1; exec " + Hosts::ip_path() +
                                   " netns exec \"$@\"\n");
    Child child(hosts.command({2, 1},
                              {"/bin/sh", "-c",
                               "echo $$ >" + folder.path() + "/$RANK; sleep 300 & exec " +
                                   KOLO_WORKER + " fall exit:3 -1"},
                              {}, enter),
                {});
    std::vector<pid_t> groups;
    for (int rank = 0; rank < 3; ++rank) {
      const std::string path = folder / std::to_string(rank);
      ASSERT_TRUE(wait_for_file(path, 20)) << path;
      groups.push_back(std::atoi(read_file(path).c_str()));
    }
    sleep_seconds(0.5);
    if (!agent) {
      child.signal(SIGKILL);
      EXPECT_TRUE(wait_until_gone(groups, 1)) << "kolorun was killed";
      continue;
    }
    const int pid = std::atoi(read_file(folder / ("agent." + hosts.name(1))).c_str());
    ASSERT_GT(pid, 0);
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    EXPECT_TRUE(wait_until_gone(groups, 1)) << "the agent was killed";
    const Outcome outcome = child.wait();
    EXPECT_EQ(outcome.exit_code, 125) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("agent on host " + hosts.name(1) + " ended unexpectedly"));
  }
  EXPECT_EQ(shared_memory_names(), before);
}

// Whose exit code, when the others are on another host: of a rank that takes long to die, too.
TEST_F(Agents, TheCauseIsNamedAcrossHosts) {
  const Hosts hosts(2);
  for (const auto& [kind, code] :
       std::initializer_list<std::pair<std::string, int>>{{"exit:3", 3}, {"signal:9", 137}}) {
    for (int i = 0; i < (long_tests() ? 500 : 6); ++i) {
      const std::string rank = std::to_string(i % 4);
      const Outcome outcome =
          hosts.launch(2, {KOLO_WORKER, "fall", kind, rank, i % 2 == 0 ? "exit:1" : "signal:6"});
      ASSERT_EQ(outcome.exit_code, code) << kind << ", launch " << i << "\n" << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr("kolorun: rank " + rank + " on " + hosts.name(i % 4 / 2)));
    }
  }
}

}  // namespace
}  // namespace kolo::test
