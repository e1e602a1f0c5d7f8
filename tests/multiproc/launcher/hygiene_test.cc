// What a job leaves behind, whoever ends it and however its ranks were wrapped: nothing; and whom
// it has disturbed: nobody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;

const std::string kKolorun = KOLO_KOLORUN;
const std::string kProbe = KOLO_PROBE;
const std::string kWorker = KOLO_WORKER;

// Processes of the same session that have nothing to do with any job, one of them by the name of
// the ranks' program.
class Bystanders {
 public:
  Bystanders() {
    std::filesystem::create_symlink("/bin/sleep", folder_ / "launcher_worker");
    for (const std::string& program : {std::string("/bin/sleep"), folder_ / "launcher_worker"}) {
      people_.push_back(
          std::make_unique<Child>(std::vector<std::string>{program, "3600"}, RunOptions{}));
    }
  }
  [[nodiscard]] bool are_well() const {
    return is_alive(people_[0]->pid()) && is_alive(people_[1]->pid());
  }

 private:
  TemporaryFolder folder_;
  std::vector<std::unique_ptr<Child>> people_;
};

// What kolo shares has no name here, whatever happens.
std::set<std::string> shared_memory_names() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename());
  }
  return names;
}

int rounds(int full, int few) { return long_tests() ? full : few; }

std::vector<pid_t> read_pids(const TemporaryFolder& folder, int count) {
  std::vector<pid_t> pids;
  for (int i = 0; i < count; ++i) {
    const std::string path = folder / std::to_string(i);
    EXPECT_TRUE(wait_for_file(path, 10)) << path;
    pids.push_back(static_cast<pid_t>(std::atoi(read_file(path).c_str())));
  }
  return pids;
}

// WORKER is put in for the program; from HERE on the rank counts as being there.
constexpr const char* kWrappers[] = {
    "HERE; sleep 300 & exec WORKER",
    "HERE; sleep 300 & WORKER; exit $?",                               // does not exec
    "(sleep 300 & sleep 300 &) ; trap '' TERM INT HUP; HERE; WORKER",  // deaf, and the daemons too
    "HERE; sh -c 'sh -c \"sleep 300 & WORKER\"; exit $?'",             // wrappers of wrappers
};

std::string with(std::string text, const std::string& word, const std::string& meaning) {
  return text.replace(text.find(word), word.size(), meaning);
}

std::string wrapped(const std::string& wrapper, const std::string& worker) {
  return with(with(wrapper, "HERE", "echo $$ >$D/$RANK"), "WORKER", worker);
}

std::string describe(const std::vector<pid_t>& pids) {
  std::string text;
  for (const pid_t pid : pids) {
    text += read_file("/proc/" + std::to_string(pid) + "/stat").substr(0, 80) + "\n";
  }
  return text;
}

// A second later; else what was there too long, and whether it goes at all.
void expect_gone(const std::vector<pid_t>& groups) {
  if (wait_until_gone(groups, 1)) return;
  std::string left;
  for (const pid_t group : groups) left += describe(group_members(group));
  const double start = now_seconds();
  const bool gone = wait_until_gone(groups, 10);
  ADD_FAILURE() << "left after 1 s:\n"
                << left << (gone ? "gone after more seconds: " : "still there after: ")
                << now_seconds() - start;
}

void expect_nobody(const TemporaryFolder& folder) {
  const std::string mark = "D=" + folder.path();
  EXPECT_TRUE(wait_until_nobody_has(mark, 1)) << describe(holders_of(mark));
}

struct End {
  const char* name;
  int exit_code;
  int fails = -1;  // this rank falls by itself
  std::vector<int> signals = {};
};

void expect_code(const std::string& wrapper, const End& end, const Outcome& outcome) {
  const bool deaf = wrapper.find("trap ''") != std::string::npos;
  const bool killed = deaf && end.exit_code == 128 + SIGTERM;
  // Of a shell that has not come to its own exit before the other rank is done, the survivor's.
  const bool late = end.fails >= 0 && !wrapper.ends_with("exec WORKER") && outcome.exit_code == 1;
  if (late) {
    EXPECT_THAT(outcome.err, HasSubstr("kolorun: rank 0 on localhost")) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("was lost")) << outcome.err;
  } else {
    EXPECT_EQ(outcome.exit_code, killed ? 128 + SIGKILL : end.exit_code) << outcome.err;
  }
}

void end_and_look(const std::string& wrapper, const End& end) {
  const TemporaryFolder folder;
  const std::string script =
      wrapped(wrapper, kWorker + " fall exit:3 " + std::to_string(end.fails));
  Child child({kKolorun, "-np", "2", "--grace", "1", "/bin/sh", "-c", script},
              {.environment = {{"D", folder.path()}}, .raw_environment = {}});
  const std::vector<pid_t> groups = read_pids(folder, 2);
  if (!end.signals.empty()) sleep_seconds(0.15);  // in the middle of steps
  for (const int number : end.signals) {
    child.signal(number);
    sleep_seconds(0.05);
  }
  const Outcome outcome = child.wait();
  SCOPED_TRACE(wrapper + ", " + end.name);
  expect_code(wrapper, end, outcome);
  expect_gone(groups);
  expect_nobody(folder);
}

// Every wrapper, however the job ends: each end 500 times, each wrapper more often.
TEST(S43, NoMemberOfTheRanksGroupsIsLeft) {
  const Bystanders bystanders;
  const int all = rounds(125, 1);
  for (int round = 0; round < all; ++round) {
    for (const char* wrapper : kWrappers) {
      for (const End& end :
           {End{"a rank fails", 3, 0}, End{"Ctrl-C", 130, -1, {SIGINT}},
            End{"Ctrl-C twice", 130, -1, {SIGINT, SIGINT}}, End{"SIGTERM", 143, -1, {SIGTERM}},
            End{"kill -9 of kolorun", 137, -1, {SIGKILL}}}) {
        end_and_look(wrapper, end);
        if (HasFailure()) return;
        ASSERT_TRUE(bystanders.are_well()) << wrapper << ", " << end.name;
      }
    }
  }
  std::printf("5 ends, %d launches each\n", 4 * all);
}

// During steps of three ranks: no later than a second afterwards all is gone.
TEST(S45, KillingKolorunEndsAllRanks) {
  const Bystanders bystanders;
  const auto before = shared_memory_names();
  for (int round = 0; round < rounds(500, 5); ++round) {
    const TemporaryFolder folder;
    Child child({kKolorun, "-np", "3", "/bin/sh", "-c",
                 wrapped(kWrappers[round % 2], kWorker + " fall exit:3 -1")},
                {.environment = {{"D", folder.path()}}, .raw_environment = {}});
    const std::vector<pid_t> groups = read_pids(folder, 3);
    sleep_seconds(0.05 + 0.02 * (round % 10));
    child.signal(SIGKILL);
    expect_gone(groups);
    expect_nobody(folder);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_EQ(shared_memory_names(), before);
  EXPECT_TRUE(bystanders.are_well());
}

// The agent is on a machine of its own as far as processes go: what it leaves there is not
// kolorun's to adopt. Either of its two processes may be the one that is killed.
TEST(S45, KillingOnlyARemoteAgentEndsAllRanks) {
  const Bystanders bystanders;
  for (int round = 0; round < rounds(500, 6); ++round) {
    const bool guard = round % 2 == 0;
    const TemporaryFolder folder;
    const std::string rsh = folder.script("rsh",
                                          "if [ $1 = a ]; then shift; exec \"$@\"; fi; shift\n"
                                          "exec " +
                                              kProbe + " adopt " + folder.path() + " \"$@\"\n");
    Child child({kKolorun, "-np", "3", "-H", "a:1,b:2", "--grace", "1", "--launcher-exec", rsh,
                 "--network-interfaces", "lo", "/bin/sh", "-c",
                 wrapped(kWrappers[round / 2 % 3], kWorker + " fall exit:3 -1")},
                {.environment = {{"D", folder.path()}}, .raw_environment = {}});
    const std::vector<pid_t> groups = read_pids(folder, 3);
    sleep_seconds(0.15);
    pid_t victim = std::atoi(read_file(folder / "agent").c_str());
    if (!guard) {
      const std::string pid = std::to_string(victim);
      victim = std::atoi(read_file("/proc/" + pid + "/task/" + pid + "/children").c_str());
    }
    ASSERT_GT(victim, 0);
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    SCOPED_TRACE(guard ? "guard" : "agent");
    expect_gone({groups[1], groups[2]});
    const Outcome outcome = child.wait();
    EXPECT_EQ(outcome.exit_code, 125) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("agent on host b ended unexpectedly"));
    expect_gone(groups);
    expect_nobody(folder);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_TRUE(bystanders.are_well());
}

// A guard that is told to end passes it on.
TEST(Orphans, SigtermToAnAgentEndsItsRanksToo) {
  const TemporaryFolder folder;
  const std::string rsh =
      folder.script("rsh", "shift; exec " + kProbe + " adopt " + folder.path() + " \"$@\"\n");
  Child child({kKolorun, "-np", "2", "-H", "b:2", "--launcher-exec", rsh, "/bin/sh", "-c",
               wrapped(kWrappers[0], "sleep 300")},
              {.environment = {{"D", folder.path()}}, .raw_environment = {}});
  const std::vector<pid_t> groups = read_pids(folder, 2);
  ASSERT_EQ(::kill(std::atoi(read_file(folder / "agent").c_str()), SIGTERM), 0);
  EXPECT_TRUE(wait_until_gone(groups, 1));
  EXPECT_EQ(child.wait().exit_code, 125);
}

}  // namespace
}  // namespace kolo::test
