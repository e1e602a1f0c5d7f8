// Situations about what jobs take from the machine, and leave of it, most of them over shared
// memory; and S13, which compares transports. What needs root is skipped without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dirent.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <regex>

#include "tests/multiproc/cases/case_launch.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Outcome launch_over(const std::string& transport, const std::string& road, int ranks,
                    const std::string& id, const Flags& flags = {}) {
  std::vector<std::string> arguments = kolorun_with_settings(ranks);
  for (const std::string& word :
       {std::string("--transport"), transport, std::string("-x"), "KOLO_TEST_ROAD=" + road}) {
    arguments.push_back(word);
  }
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {case_ranks(), id});
  RunOptions options;
  options.timeout_seconds = long_tests() ? 300 : 60;
  return run(arguments, options);
}

std::string first_match(const std::string& text, const std::string& pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? match[1].str() : "none";
}

TEST(Situation, S13) {
  std::vector<std::string> transports = {"shm", "tcp"};
#ifdef KOLO_HAS_MPI
  transports.emplace_back("mpi");
#endif
  std::string reference;
  for (const std::string& transport : transports) {
    const Outcome outcome = launch_over(transport, transport, 3, "S13");
    ASSERT_EQ(outcome.exit_code, 0) << transport << outcome.out << outcome.err;
    const std::string hash = first_match(outcome.out, "hash ([0-9a-f]{16}) over");
    ASSERT_NE(hash, "none") << outcome.out;
    if (reference.empty()) reference = hash;
    EXPECT_EQ(hash, reference) << transport;
  }
}

TEST(Situation, S57OneHostWithRanksBoundToCores) {
  const Outcome outcome = launch_over("auto", "shm", 4, "S57.bound");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (int rank = 0; rank < 4; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_THAT(outcome.out, HasSubstr("rank " + number + " is " + number + " of 4 on "));
  }
}

// ---- S58

bool may_unshare_mounts() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::unshare(CLONE_NEWNS) == 0 ? 0 : 1);
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(Situation, S58NothingComesFromDevShm) {
  if (!may_unshare_mounts()) GTEST_SKIP() << "mount namespaces need root";
  const std::pair<const char*, const char*> states[] = {
      {"1 MiB", "true"},
      {"nothing free", "! head -c 2m /dev/zero 2>/dev/null >/dev/shm/full"},
      {"read-only", "mount -o remount,ro /dev/shm && ! touch /dev/shm/x 2>/dev/null"}};
  const TemporaryFolder folder;
  for (const auto& [name, command] : states) {
    const std::string script = folder.script(
        "inside", std::string("exec unshare --mount sh -ec 'mount -t tmpfs -o size=1m tmpfs "
                              "/dev/shm; ") +
                      command + "; exec \"$@\"' sh \"$@\"\n");
    for (const char* transport : {"auto", "shm"}) {
      std::vector<std::string> arguments = kolorun_with_settings(2);
      arguments.insert(arguments.begin(), script);
      arguments.insert(arguments.end(),
                       {"--transport", transport, "-x", "KOLO_TEST_ROAD=shm", case_ranks(), "S58"});
      const Outcome outcome = run(arguments);
      EXPECT_EQ(outcome.exit_code, 0) << name << outcome.out << outcome.err;
      EXPECT_EQ(outcome.err, "") << name;
    }
  }
}

constexpr const char* kDenials[] = {"memfd_create",    "ftruncate", "fallocate",
                                    "fallocate-carve", "mmap",      "mmap-peer"};

Flags denied(const std::string& what, const char* rank) {
  Flags flags = {"-x", "KOLO_TEST_DENIED=" + what};
  if (*rank != '\0') flags.insert(flags.end(), {"-x", std::string("KOLO_TEST_DENIED_ON=") + rank});
  return flags;
}

TEST(Situation, S58WithoutMemoryTheJobTakesAnotherRoadWithOneWarning) {
  for (const std::string denial : kDenials) {
    for (const char* rank : {"", "0", "1"}) {
      SCOPED_TRACE(denial + " fails on rank " + rank);
      const Outcome outcome = launch_over("auto", "tcp", 2, "S58", denied(denial, rank));
      EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
      EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr("share no memory"));
      EXPECT_TRUE(std::regex_search(outcome.err, std::regex("[0-9]+ bytes"))) << outcome.err;
    }
  }
}

TEST(Situation, S58WithoutMemoryThatIsDemandedEveryRankSaysSo) {
  for (const std::string denial : kDenials) {
    for (const char* rank : {"", "1"}) {
      SCOPED_TRACE(denial + " fails on rank " + rank);
      const Outcome outcome = launch_over("shm", "none", 2, "S58.demanded", denied(denial, rank));
      EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    }
  }
}

// Then ranks hear of deaths by their sockets alone.
TEST(Situation, S58SocketsNeedNoMemoryOfOthers) {
  for (const std::string denial : {"memfd_create", "mmap-peer"}) {
    for (const char* rank : {"", "1"}) {
      SCOPED_TRACE(denial + " fails on rank " + rank);
      const Outcome outcome = launch_over("tcp", "tcp", 2, "S58", denied(denial, rank));
      EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
      EXPECT_EQ(outcome.err, "");
    }
  }
}

// What is left is enough to share memory, but kolo_alloc has none to give.
TEST(Situation, S58AnAllocationFailsAloneAndTheJobGoesOn) {
  const Outcome outcome = launch_over("shm", "shm", 2, "S58", denied("fallocate-alloc", "1"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "");
}

// ---- S59

// With all their descendants.
std::vector<pid_t> family_of(pid_t ancestor) {
  std::vector<pid_t> family = {ancestor};
  for (std::size_t i = 0; i < family.size(); ++i) {
    const std::string task = "/proc/" + std::to_string(family[i]) + "/task";
    DIR* folder = ::opendir(task.c_str());
    if (folder == nullptr) continue;
    while (const dirent* entry = ::readdir(folder)) {
      const std::string children = read_file(task + "/" + entry->d_name + "/children");
      std::size_t at = 0;
      for (std::size_t end = children.find(' '); end != std::string::npos;
           at = end + 1, end = children.find(' ', at)) {
        family.push_back(static_cast<pid_t>(std::stol(children.substr(at, end - at))));
      }
    }
    ::closedir(folder);
  }
  return family;
}

// Processes of this build's case_ranks.
std::vector<pid_t> living_ranks() {
  std::error_code ignored;
  const auto program = std::filesystem::canonical(case_ranks());
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || std::filesystem::read_symlink(entry.path() / "exe", ignored) != program)
      continue;
    if (is_alive(pid)) found.push_back(pid);
  }
  return found;
}

struct DevShm {
  std::vector<std::string> names;
  std::uint64_t free_blocks = 0;
  bool operator==(const DevShm&) const = default;
};

DevShm look_at_dev_shm() {
  DevShm seen;
  DIR* folder = ::opendir("/dev/shm");
  while (const dirent* entry = folder == nullptr ? nullptr : ::readdir(folder)) {
    seen.names.emplace_back(entry->d_name);
  }
  if (folder != nullptr) ::closedir(folder);
  std::sort(seen.names.begin(), seen.names.end());
  struct statvfs info {};
  EXPECT_EQ(::statvfs("/dev/shm", &info), 0);
  seen.free_blocks = info.f_bfree;
  return seen;
}

// One of its own for this process, if it may have that, as other programs use the machine's.
void isolate_dev_shm() {
  if (!may_unshare_mounts() || ::unshare(CLONE_NEWNS) != 0) return;
  ASSERT_EQ(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  ASSERT_EQ(::mount("none", "/dev/shm", "tmpfs", 0, "size=64m"), 0);
}

TEST(Situation, S59) {
  isolate_dev_shm();
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const DevShm before = look_at_dev_shm();
  int with_ranks = 0;
  for (int round = 0; round < (long_tests() ? 100 : 10); ++round) {
    std::vector<std::string> arguments = kolorun_with_settings(3);
    for (const std::string& word : over("shm")) arguments.push_back(word);
    arguments.insert(arguments.end(), {case_ranks(), "S59"});
    Child job(arguments, {});
    sleep_seconds(static_cast<double>(random() % 400) / 1000);
    std::vector<pid_t> family = family_of(job.pid());
    std::shuffle(family.begin(), family.end(), random);
    for (const pid_t pid : family) ::kill(pid, SIGKILL);
    if (family.size() >= 4) ++with_ranks;
    const Outcome outcome = job.wait();
    // Who is killed a little later may have noticed the others' death; it is not hurt by it.
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_THAT(outcome.err, Not(HasSubstr("Bus error")));
    EXPECT_THAT(outcome.err, Not(HasSubstr("Segmentation fault")));
    // Also of those that were started after the look at the family.
    const auto some_live = [&] {
      return !living_ranks().empty() || std::any_of(family.begin(), family.end(), is_alive);
    };
    for (int i = 0; i < 300 && some_live(); ++i) sleep_seconds(0.01);
    EXPECT_EQ(living_ranks(), std::vector<pid_t>()) << "round " << round;
    for (const pid_t pid : family) EXPECT_FALSE(is_alive(pid)) << "round " << round;
  }
  EXPECT_GT(with_ranks, 0);  // else nothing was tried
  EXPECT_EQ(look_at_dev_shm(), before);
}

// ---- S62, S63

TEST(Situation, S62) {
  const Outcome outcome = launch_over("shm", "shm", 4, "S62");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  std::printf("%s", outcome.out.c_str());
}

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length), 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

TEST(Situation, S63) {
  const std::string port = std::to_string(free_port());
  for (int job = 0; job < (long_tests() ? 50 : 5); ++job) {
    const Outcome outcome = launch_over("shm", "shm", 8, "wire", {"--rendezvous-port", port});
    ASSERT_EQ(outcome.exit_code, 0) << "job " << job << " on port " << port << outcome.err;
    EXPECT_EQ(outcome.err, "");
  }
}

}  // namespace
}  // namespace kolo::test
