// Situations in which a rank dies or ends the job, over one transport (case_launch.h).
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/multiproc/cases/case_launch.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kKilled = 128 + SIGKILL;

// Survivors have time to show what still works, and all of them do.
void expect_survivors_well(const std::string& id, int victim, const Flags& more = {}) {
  Flags flags = {"--grace", "30", "--stall-check-shutdown-time-seconds", "25"};
  flags.insert(flags.end(), more.begin(), more.end());
  const Outcome outcome = launch(4, id, flags, 60);
  EXPECT_EQ(outcome.exit_code, kKilled) << outcome.out << outcome.err;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string line = "rank " + std::to_string(rank) + " is well\n";
    if (rank == victim) {
      EXPECT_THAT(outcome.out, Not(HasSubstr(line)));
    } else {
      EXPECT_THAT(outcome.out, HasSubstr(line)) << outcome.err;
    }
  }
}

TEST(Situation, S23) { expect_survivors_well("S23", 3); }

// A seed gives victim and moment.
TEST(Loss, SetsWithoutTheVictimLiveOn) {
  const char* given = std::getenv("KOLO_TEST_SEED");
  const unsigned first = given == nullptr ? 0 : static_cast<unsigned>(std::atoi(given));
  for (unsigned seed = first; seed < first + (given == nullptr ? 6 : 1); ++seed) {
    std::mt19937 random(seed);
    const int victim = static_cast<int>((seed + 3) % 4);  // each of them
    const std::string after = std::to_string(random() % 200);
    SCOPED_TRACE("KOLO_TEST_SEED=" + std::to_string(seed) + ": rank " + std::to_string(victim) +
                 " dies after " + after + " ms");
    const TemporaryFolder folder;
    expect_survivors_well(
        "loss-sets", victim,
        {"-x", "KOLO_TEST_VICTIM=" + std::to_string(victim), "-x", "KOLO_TEST_AFTER_MS=" + after,
         "-x", "KOLO_TEST_FOLDER=" + folder.path()});
    if (HasFailure()) return;
  }
}

TEST(Loss, TheFirstCauseStays) {
  for (int round = 0; round < 5; ++round) {
    const Outcome outcome = launch(4, "loss-first-cause", {"--grace", "30"});
    EXPECT_EQ(outcome.exit_code, kKilled) << outcome.out << outcome.err;
    for (const int rank : {0, 3}) {
      EXPECT_THAT(outcome.out, HasSubstr("rank " + std::to_string(rank) + " is well\n"))
          << outcome.err;
    }
  }
}

std::string free_place() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
  ::close(listener);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

// Two contexts of one process, so two jobs, which nobody launches.
void abort_in_order(const std::string& order) {
  RunOptions options;
  options.timeout_seconds = long_tests() ? 60 : 20;
  options.environment = {{"KOLO_SIZE", "2"},
                         {"KOLO_SECRET", "a secret of the two jobs"},
                         {"KOLO_TRANSPORT", transport_under_test()},
                         {"KOLO_START_TIMEOUT_MS", "10000"},
                         {"KOLO_PEER_TIMEOUT_MS", "3000"},
                         {"KOLO_TEST_P", free_place()},
                         {"KOLO_TEST_Q", free_place()},
                         {"KOLO_TEST_ORDER", order}};
  RunOptions other = options;
  options.environment["KOLO_RANK"] = "0";
  other.environment["KOLO_RANK"] = "1";
  Child rank_0({case_ranks(), "S37"}, options);
  Child rank_1({case_ranks(), "S37"}, other);
  for (Child* child : {&rank_0, &rank_1}) {
    const Outcome outcome = child->wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    EXPECT_EQ(outcome.out, "well\n");
  }
}

TEST(Situation, S37) {
  abort_in_order("PQ");
  abort_in_order("QP");
}

}  // namespace
}  // namespace kolo::test
