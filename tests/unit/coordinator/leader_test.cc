#include "coordinator/leader.h"

#include <gtest/gtest.h>

#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

// Ranks 0, 1 on host 0; 2, 3, 4 on host 1, whose leader is under test.
class LeaderTest : public ::testing::Test {
 protected:
  void add(int rank, const UnitPtr& unit, Nanos now = 0ns) {
    const int self[] = {rank};
    leader_.add(self, unit, now);
  }
  // The root orders `unit` under `id`, for the first time.
  void introduce(std::uint64_t id, const UnitPtr& unit) {
    RunItem run;
    run.units.push_back({id, unit, true, {}});
    leader_.observe(run);
  }
  std::vector<int> ranks_told() {
    std::vector<int> ranks;
    for (const Fact& fact : leader_.take_report().facts) {
      ranks.insert(ranks.end(), fact.ranks.begin(), fact.ranks.end());
    }
    return ranks;
  }

  Topology topology_{{0, 0, 1, 1, 1}};
  Leader leader_{topology_, 1, 100ms};
};

TEST_F(LeaderTest, SpeaksOnceForAllRanksOfItsHost) {
  add(2, allreduce("a"));
  add(4, allreduce("a"));
  EXPECT_TRUE(leader_.take_report().empty());
  add(3, allreduce("a"));
  const Frame report = leader_.take_report();
  ASSERT_EQ(report.facts.size(), 1u);
  EXPECT_EQ(report.facts[0].ranks, (std::vector<int>{2, 3, 4}));
}

TEST_F(LeaderTest, CachedUnitsAreOneToggle) {
  introduce(2, allreduce("a"));
  for (const int rank : {2, 3, 4}) ASSERT_TRUE(leader_.add_toggle(rank, {2, true}, 0ns).is_ok());
  EXPECT_TRUE(leader_.take_report().empty()) << "`true` has been ordered already";
  for (const int rank : {2, 3, 4}) ASSERT_TRUE(leader_.add_toggle(rank, {2, false}, 0ns).is_ok());
  const Frame report = leader_.take_report();
  EXPECT_TRUE(report.facts.empty());
  EXPECT_EQ(report.toggles, (std::vector<Toggle>{{2, false}}));
}

TEST_F(LeaderTest, UnknownIdsAreRefused) {
  EXPECT_EQ(leader_.add_toggle(2, {8, true}, 0ns).code(), StatusCode::kInternal);
}

TEST_F(LeaderTest, WhatWaitsForLongStreams) {
  add(2, allreduce("a"));
  leader_.tick(99ms);
  EXPECT_TRUE(leader_.take_report().empty());
  EXPECT_EQ(leader_.next_deadline(), 100ms);
  leader_.tick(100ms);
  EXPECT_EQ(ranks_told(), std::vector<int>{2});
  add(4, allreduce("a"), 101ms);
  EXPECT_EQ(ranks_told(), std::vector<int>{4}) << "the rest follows as it comes";
  EXPECT_EQ(leader_.next_deadline(), kNever);
}

TEST_F(LeaderTest, AJoinComesAfterTheSubmissionsOfThatRank) {
  add(3, allreduce("a"));
  add(2, allreduce("b"));
  leader_.add_joined(0, 3);
  const Frame report = leader_.take_report();
  ASSERT_EQ(report.facts.size(), 1u);
  EXPECT_EQ(report.facts[0].unit->key.name, "a");
  EXPECT_EQ(report.joined.size(), 1u);
  add(4, allreduce("b"));
  EXPECT_EQ(ranks_told(), (std::vector<int>{2, 4})) << "rank 3 is not waited for";
}

TEST_F(LeaderTest, ATimeLimitTellsWhatIsKnown) {
  add(3, allreduce("a"));
  leader_.expire({0, "a"}, 3);
  const Frame report = leader_.take_report();
  EXPECT_EQ(report.facts.size(), 1u);
  EXPECT_EQ(report.expired.size(), 1u);
}

TEST_F(LeaderTest, RanksLateForAFailedUnitAreToldAtOnce) {
  add(3, allreduce("a"));
  leader_.expire({0, "a"}, 3);
  static_cast<void>(leader_.take_report());
  leader_.observe(failure_of({0, "a"}, {0, 1, 3}, timed_out("late")));
  add(2, allreduce("a"));
  EXPECT_EQ(ranks_told(), std::vector<int>{2}) << "it must not wait for rank 3";
}

TEST_F(LeaderTest, WhatHasBeenToldIsNotCountedForTheNextRound) {
  introduce(2, allreduce("a"));
  for (const int rank : {2, 3, 4}) ASSERT_TRUE(leader_.add_toggle(rank, {2, false}, 0ns).is_ok());
  static_cast<void>(leader_.take_report());
  ASSERT_TRUE(leader_.add_toggle(2, {2, false}, 0ns).is_ok());  // heard again, not yet ordered
  RunItem run;
  run.units.push_back({2, nullptr, false, {}});
  leader_.observe(run);
  for (const int rank : {3, 4}) ASSERT_TRUE(leader_.add_toggle(rank, {2, true}, 0ns).is_ok());
  EXPECT_TRUE(leader_.take_report().empty()) << "rank 2 has not submitted again";
}

}  // namespace
}  // namespace kolo::internal
