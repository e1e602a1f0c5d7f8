// Many jobs at once, and many ranks at the same instant.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

const std::string kKolorun = KOLO_KOLORUN;
const std::string kWorker = KOLO_WORKER;

// 20 jobs of 2 ranks started at once on one host, no port given; repeated 10 times. Each adds a
// number of its own: a rank in the wrong job would make a wrong sum.
TEST(S55, TwentyJobsAtOnceDoNotMeet) {
  constexpr int kJobs = 20;
  const int rounds = long_tests() ? 10 : 1;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::unique_ptr<Child>> jobs;
    for (int job = 0; job < kJobs; ++job) {
      const std::string token = std::to_string(1000 * (round * kJobs + job) + 7);
      jobs.push_back(std::make_unique<Child>(
          std::vector<std::string>{kKolorun, "-np", "2", "--start-timeout", "30", kWorker, "add",
                                   token, "20"},
          RunOptions{.timeout_seconds = 60, .environment = {}, .raw_environment = {}}));
    }
    for (int job = 0; job < kJobs; ++job) {
      const Outcome outcome = jobs[static_cast<std::size_t>(job)]->wait();
      EXPECT_EQ(outcome.exit_code, 0) << "round " << round << ", job " << job << outcome.err;
      EXPECT_EQ(outcome.err, "");
    }
  }
}

std::vector<pid_t> children_of(pid_t pid) {
  const std::string number = std::to_string(pid);
  std::vector<pid_t> children;
  std::istringstream text(read_file("/proc/" + number + "/task/" + number + "/children"));
  for (pid_t child = 0; text >> child;) children.push_back(child);
  return children;
}

// The only child, all the way down, as long as there is but one.
std::vector<pid_t> line_of_descent(pid_t pid) {
  std::vector<pid_t> line;
  for (std::vector<pid_t> next = children_of(pid); !next.empty(); next = children_of(next[0])) {
    line.push_back(next[0]);
    if (next.size() > 1) break;
  }
  return line;
}

std::size_t count_entries(const std::string& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    count += entry.is_regular_file() ? 1 : 0;
  }
  return count;
}

// 96 light ranks on one host connect at the same instant while the coordinator (the agent, where
// they meet, and rank 0) is paused 500 ms; backlog limit 16 set in the namespace.
TEST(S56, NinetySixRanksAtOnceWithAShortBacklog) {
  constexpr int kRanks = 96;
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "go").c_str(), 0600), 0);
  const std::string limits =
      "ip link set lo up 2>/dev/null || /usr/sbin/ip link set lo up; "
      "echo 16 >/proc/sys/net/core/somaxconn || exit 77; "
      "[ $(cat /proc/sys/net/core/somaxconn) = 16 ] || exit 77; exec \"$0\" \"$@\"";
  Child job({"/usr/bin/unshare", "--net", "--mount", "/bin/sh", "-c",
             "mount -t sysfs none /sys 2>/dev/null; " + limits, kKolorun, "-np",
             std::to_string(kRanks), "--start-timeout", "10", kWorker, "meet", folder.path()},
            {.timeout_seconds = 90, .environment = {}, .raw_environment = {}});
  const double patience = now_seconds() + 30;
  while (count_entries(folder.path()) < kRanks && is_alive(job.pid())) {
    ASSERT_LT(now_seconds(), patience);
    sleep_seconds(0.02);
  }
  if (!is_alive(job.pid())) {
    const Outcome outcome = job.wait();
    if (outcome.exit_code == 77 || outcome.err.find("unshare") != std::string::npos) {
      GTEST_SKIP() << "a network namespace with a backlog limit of its own needs root: "
                   << outcome.err;
    }
    FAIL() << outcome.exit_code << outcome.err;
  }
  std::vector<pid_t> coordinator = line_of_descent(job.pid());  // kolorun's guard, agent, rank 0
  ASSERT_GE(coordinator.size(), 3u);
  coordinator.erase(coordinator.begin());
  for (const pid_t pid : coordinator) ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  const int go = ::open((folder / "go").c_str(), O_WRONLY);
  ASSERT_GE(go, 0);
  const double start = now_seconds();
  sleep_seconds(0.5);
  for (const pid_t pid : coordinator) ASSERT_EQ(::kill(pid, SIGCONT), 0);
  const Outcome outcome = job.wait();
  ::close(go);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  int joined = 0;
  double last = 0;
  for (const std::string& line : lines_of(outcome.out)) {
    const std::size_t at = line.find("joined ");
    if (at == std::string::npos) continue;
    ++joined;
    last = std::max(last, std::atof(line.c_str() + at + 7));
  }
  EXPECT_EQ(joined, kRanks);
  EXPECT_LT(last - start, 10);
  std::printf("%d joined within %.2f s, all done after %.2f s\n", joined, last - start,
              now_seconds() - start);
}

}  // namespace
}  // namespace kolo::test
