// Lost ranks: which process sets end with them, who hears of it, and that nothing waits for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/coordinator/cluster.h"
#include "tests/unit/coordinator/slot_cluster.h"
#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

UnitPtr set_change(OpKind kind, const std::string& name, std::vector<std::int64_t> shape) {
  TensorSpec spec;
  spec.name = name;
  spec.kind = kind;
  spec.shape = std::move(shape);
  return share(single(std::move(spec)));
}
UnitPtr create(const std::string& name, std::vector<std::int64_t> ranks) {
  return set_change(OpKind::kCreateSet, "#pset:" + name, std::move(ranks));
}
UnitPtr destroy(std::uint32_t id) {
  return set_change(OpKind::kDestroySet, "#destroy:" + std::to_string(id), {std::int64_t{id}});
}

bool has_closed(Cluster::Rank& rank, std::uint32_t set) {
  for (const SetClosed& one : rank.left) {
    if (one.process_set == set && one.status.code() == StatusCode::kPeerLost) return true;
  }
  return false;
}

// Two hosts of two ranks; set 1 is {0, 1}, set 2 {2, 3}, set 3 {1, 2}.
class Loss : public ::testing::Test {
 protected:
  Loss() : cluster_(topology()) {}
  static Topology topology() {
    Topology topology({0, 0, 1, 1});
    topology.add_process_set(1, {0, 1});
    topology.add_process_set(2, {2, 3});
    topology.add_process_set(3, {1, 2});
    return topology;
  }
  void submit(int rank, Ticket ticket, const UnitPtr& unit) {
    const Status status = cluster_.submit(rank, ticket, unit);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
  }
  // It says nothing any more, and `by` has noticed.
  void lose(int rank, int by) {
    for (int other = 0; other < 4; ++other) cluster_.hold(rank, other);
    cluster_.at(by).peer_lost(rank, "on host b is lost: its connection ended");
    cluster_.settle();
  }
  void expect_runs(std::uint32_t set, const std::vector<int>& ranks) {
    for (const int rank : ranks) submit(rank, 50, allreduce("alive", set));
    cluster_.settle();
    for (const int rank : ranks) {
      ASSERT_FALSE(cluster_[rank].plans.empty()) << rank;
      EXPECT_EQ(cluster_[rank].plans.back().units.front().ticket, 50u) << rank;
    }
  }

  Cluster cluster_;
};

TEST_F(Loss, TakesAlongTheSetsThatHoldTheRankAndNoOthers) {
  submit(1, 1, allreduce("w"));
  submit(2, 2, allreduce("x", 2));
  submit(2, 3, allreduce("y", 3));
  cluster_.settle();
  lose(3, 2);
  EXPECT_EQ(cluster_[1].ended[1].code(), StatusCode::kPeerLost);
  EXPECT_EQ(cluster_[2].ended[2].code(), StatusCode::kPeerLost);
  EXPECT_THAT(cluster_[2].ended[2].text(),
              AllOf(HasSubstr("rank 3"), HasSubstr("host b"), HasSubstr("connection ended")));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(cluster_[rank].broken.empty());
    EXPECT_TRUE(has_closed(cluster_[rank], 0));
    const Status later = cluster_.submit(rank, 9, allreduce("later"));
    EXPECT_EQ(later.text(), cluster_[rank].left.front().status.text()) << "the same status";
  }
  EXPECT_FALSE(cluster_[2].ended.contains(3)) << "set 3 lives";
  submit(1, 4, allreduce("y", 3));
  cluster_.settle();
  EXPECT_EQ(cluster_[2].plans.back().units.front().ticket, 3u);
  expect_runs(1, {0, 1});
  expect_runs(3, {1, 2});
}

TEST_F(Loss, OfALeaderTakesAlongWhatItForwards) {
  lose(2, 0);
  cluster_.at(3).peer_lost(2, "on host b is lost: its connection ended");
  cluster_.settle();
  for (const std::uint32_t set : {0U, 2U}) EXPECT_TRUE(has_closed(cluster_[3], set));
  for (const std::uint32_t set : {0U, 3U}) EXPECT_TRUE(has_closed(cluster_[1], set));
  EXPECT_FALSE(has_closed(cluster_[1], 1));
  expect_runs(1, {0, 1});
}

TEST_F(Loss, OfTheRootLeavesOtherHostsTheirOwn) {
  lose(0, 2);
  for (const std::uint32_t set : {0U, 3U}) EXPECT_TRUE(has_closed(cluster_[2], set));
  EXPECT_TRUE(has_closed(cluster_[3], 0)) << "through its leader";
  EXPECT_FALSE(has_closed(cluster_[3], 2));
  expect_runs(2, {2, 3});
  lose(3, 2);
  EXPECT_TRUE(has_closed(cluster_[2], 2)) << "a second loss";
  EXPECT_THAT(cluster_.submit(2, 60, allreduce("w")).text(), HasSubstr("rank 0"))
      << "the first cause stays";
}

TEST_F(Loss, TheLostRankIsToldAndNoLongerHeard) {
  for (int other = 0; other < 4; ++other) cluster_.hold(3, other);
  submit(3, 1, allreduce("x", 2));
  submit(2, 2, allreduce("x", 2));
  cluster_.at(2).peer_lost(3, "on host b is lost: silent for 500 ms");
  cluster_.settle();
  ASSERT_EQ(cluster_[3].broken.size(), 1u);
  EXPECT_EQ(cluster_[3].broken[0].code(), StatusCode::kPeerLost);
  EXPECT_THAT(cluster_[3].broken[0].text(), AllOf(HasSubstr("given"), HasSubstr("500 ms")));
  EXPECT_EQ(cluster_[3].ended[1].code(), StatusCode::kPeerLost);
  cluster_.release();  // all that it has said meanwhile
  cluster_.settle();
  EXPECT_TRUE(cluster_[2].plans.empty());
  EXPECT_TRUE(cluster_[0].broken.empty());
  expect_runs(3, {1, 2});
}

// Rank 1 gives its call up; rank 2 had the set already, and must not wait for rank 1 there.
TEST_F(Loss, ASetInTheMakingEndsWithTheWorld) {
  for (int rank = 0; rank < 4; ++rank) submit(rank, 1, create("a", {1, 2}));
  cluster_.hold(0, 1);
  cluster_.settle();
  ASSERT_EQ(cluster_[2].plans.back().units.front().new_set, 4u);
  submit(2, 2, allreduce("x", 4));
  cluster_.settle();
  cluster_.at(1).peer_lost(3, "on host b is lost: its process ended");
  cluster_.settle();
  EXPECT_EQ(cluster_[1].ended[1].code(), StatusCode::kPeerLost);
  EXPECT_FALSE(cluster_[2].ended.contains(2)) << "rank 1 has not seen the set yet";
  cluster_.release();
  cluster_.settle();
  EXPECT_EQ(cluster_[2].ended[2].code(), StatusCode::kPeerLost);
  EXPECT_EQ(cluster_.submit(1, 3, allreduce("x", 4)).code(), StatusCode::kPeerLost);
  expect_runs(3, {1, 2});
}

TEST_F(Loss, ASetWhoseEndWasCalledForEndsWithTheWorld) {
  submit(1, 1, allreduce("x", 3));  // rank 2 will not
  for (const int rank : {1, 2}) submit(rank, 2, destroy(3));
  cluster_.settle();
  lose(3, 2);
  EXPECT_EQ(cluster_[1].ended[2].code(), StatusCode::kPeerLost);
  EXPECT_EQ(cluster_[1].ended[1].code(), StatusCode::kPeerLost);
  EXPECT_EQ(cluster_.submit(1, 3, destroy(1)).code(), StatusCode::kPeerLost) << "after the loss";
  cluster_.settle();
  EXPECT_TRUE(has_closed(cluster_[0], 1));
}

TEST_F(Loss, NobodyIsLateInASetThatIsOver) {
  SequencerOptions options;
  options.stall_warning = 1ms;
  Cluster cluster(topology(), options);
  ASSERT_TRUE(cluster.submit(2, 1, allreduce("x", 2)).is_ok());
  ASSERT_TRUE(cluster.submit(1, 1, allreduce("w")).is_ok());
  cluster.settle();
  cluster.at(2).peer_lost(3, "is lost");
  cluster.settle();
  for (int step = 0; step < 20; ++step) {
    cluster.now += 1ms;
    cluster.tick_all();
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(cluster[rank].warnings.empty()) << rank;
}

// On one host with a board: rank 3 goes, {1, 2} goes on for longer than the log is, and for more
// names than there are slots.
class GoneFromAHost : public ::testing::TestWithParam<bool> {};

TEST_P(GoneFromAHost, TheLogDoesNotWaitForTheRank) {
  const bool leaves = GetParam();
  Topology topology({0, 0, 0, 0});
  topology.add_process_set(1, {1, 2});
  SlotCluster cluster(topology, {}, 4);
  cluster.submit_all(1, allreduce("w", 0, 100));
  const auto both = [&](Ticket ticket, const UnitPtr& unit) {
    for (const int rank : {1, 2}) cluster.submit(rank, ticket, unit);
    cluster.settle();
    for (const int rank : {1, 2}) {
      ASSERT_TRUE(cluster[rank].ended.contains(ticket)) << rank;
      ASSERT_TRUE(cluster[rank].ended[ticket].is_ok()) << cluster[rank].ended[ticket].text();
    }
  };
  both(2, allreduce("x", 1, 100));
  cluster.submit(0, 3, allreduce("w", 0, 100));
  if (leaves) {
    cluster.at(3).goodbye();
    cluster.settle();
  }
  cluster.hold(3);
  if (!leaves) cluster.at(0).peer_lost(3, "is lost: its process ended");
  cluster.settle();
  EXPECT_EQ(cluster[0].ended[3].code(), leaves ? StatusCode::kAborted : StatusCode::kPeerLost);
  for (Ticket ticket = 10; ticket < 200; ++ticket) {
    both(ticket, allreduce(ticket % 3 == 0 ? "y" : "x", 1, 100));
    if (::testing::Test::HasFatalFailure()) return;
  }
  for (Ticket ticket = 200; ticket < 240; ++ticket) {
    both(ticket, allreduce("n" + std::to_string(ticket), 1, ticket % 2 == 0 ? 2 : 100));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(LostOrLeft, GoneFromAHost, ::testing::Bool());

}  // namespace
}  // namespace kolo::internal
