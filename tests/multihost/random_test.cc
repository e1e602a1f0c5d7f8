// Random programs, process sets and joins over two and four hosts, which are network namespaces.
#include <gtest/gtest.h>

#include "tests/multihost/hosts.h"

namespace kolo::test {
namespace {

struct Layout {
  std::vector<int> ranks;  // on each host
  const char* road;
};

class HostsOfAll : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string obstacle = Hosts::obstacle();
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  }
};

TEST_F(HostsOfAll, RandomPrograms) {
  std::uint64_t seed = 400'001;
  for (const Layout& layout : {Layout{{2, 2}, "shm+tcp"}, Layout{{2, 1}, "shm+tcp"},
                               Layout{{1, 1, 1, 1}, "tcp"}, Layout{{3, 1}, "shm+tcp"}}) {
    const Hosts hosts(static_cast<int>(layout.ranks.size()));
    const int programs = long_tests() ? (seed == 400'001 ? 1000 : 100) : 10;
    const Outcome outcome = hosts.launch_on(
        layout.ranks,
        {KOLO_RANDOM_RANKS, "--seed", std::to_string(seed), "--programs", std::to_string(programs)},
        {"-x", std::string("KOLO_TEST_ROAD=") + layout.road}, "", long_tests() ? 1800.0 : 90.0);
    EXPECT_EQ(outcome.exit_code, 0) << hosts.list(layout.ranks) << "\n"
                                    << outcome.out << outcome.err;
    seed += 100'000;
  }
}

TEST_F(HostsOfAll, SituationsOfSetsAndJoins) {
  const Hosts hosts(2);
  for (const char* id :
       {"S21", "S22", "S24", "S25", "set-rules", "set-in-flight", "set-threads", "set-numbers",
        "set-callbacks", "set-many", "join-uneven", "join-floats", "join-kinds", "join-sets",
        "join-callback", "kinds-of-a-name", "twice-in-a-group"}) {
    const Outcome outcome =
        hosts.launch_on({2, 1}, {KOLO_CASE_RANKS, id}, {"-x", "KOLO_TEST_ROAD=shm+tcp"});
    EXPECT_EQ(outcome.exit_code, 0) << id << "\n" << outcome.out << outcome.err;
  }
  for (const char* id : {"S32", "S64", "S65", "join-rules"}) {
    const Outcome outcome = hosts.launch(1, {KOLO_CASE_RANKS, id});
    EXPECT_EQ(outcome.exit_code, 0) << id << "\n" << outcome.out << outcome.err;
  }
}

}  // namespace
}  // namespace kolo::test
