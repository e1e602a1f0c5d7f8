// Process sets that are made and destroyed while the job runs, over frames and over slots.
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

// Two hosts with two ranks each, and all on one.
class ProcessSets : public ::testing::TestWithParam<bool> {
 protected:
  ProcessSets()
      : cluster_(Topology(GetParam() ? std::vector{0, 0, 1, 1} : std::vector{0, 0, 0, 0})) {}

  void submit_all(Ticket ticket, const UnitPtr& unit) {
    for (int rank = 0; rank < 4; ++rank) submit(rank, ticket, unit);
    cluster_.settle();
  }
  void submit(int rank, Ticket ticket, const UnitPtr& unit) {
    const Status status = cluster_.submit(rank, ticket, unit);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
  }
  // Of the last plan on that rank.
  const PlannedUnit& last(int rank) { return cluster_[rank].plans.back().units.front(); }
  std::uint32_t make(Ticket ticket, const std::string& name, std::vector<std::int64_t> ranks) {
    submit_all(ticket, create(name, std::move(ranks)));
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(last(rank).new_set, last(0).new_set) << "the id is the same on all ranks";
      EXPECT_EQ(last(rank).ticket, ticket);
    }
    return last(0).new_set;
  }

  Cluster cluster_;
};

TEST_P(ProcessSets, AreMadeUsedAndDestroyedAndIdsAreNeverUsedTwice) {
  EXPECT_EQ(make(1, "a", {1, 2, 3}), 1u);
  EXPECT_EQ(make(2, "b", {2, 3}), 2u);
  for (const int rank : {3, 2}) submit(rank, 3, allreduce("x", 2));
  cluster_.settle();
  EXPECT_EQ(last(2).unit->key.process_set, 2u);
  EXPECT_EQ(last(3).ticket, 3u);
  submit_all(4, destroy(1));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ended_set(*last(rank).unit), 1u);
    const Status late = cluster_.submit(rank, 9, allreduce("x", 1));
    EXPECT_EQ(late.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(late.text(), HasSubstr("there is no process set 1 any more"));
    EXPECT_FALSE(cluster_.at(rank).join(1));
  }
  EXPECT_EQ(make(5, "a", {0, 1, 2, 3}), 3u);
  EXPECT_TRUE(cluster_[0].broken.empty());
}

TEST_P(ProcessSets, OneThatARankIsNotInOrThatNeverWasIsRefused) {
  make(1, "a", {1, 2});
  EXPECT_THAT(cluster_.submit(0, 2, allreduce("x", 1)).text(),
              HasSubstr("rank 0 is not in process set 1"));
  EXPECT_THAT(cluster_.submit(0, 2, allreduce("x", 7)).text(), HasSubstr("no process set 7"));
  EXPECT_FALSE(cluster_.at(0).join(1));
}

TEST_P(ProcessSets, OtherRanksElsewhereAreAMismatchThatSaysSo) {
  for (int rank = 0; rank < 4; ++rank) {
    submit(rank, 1, rank == 2 ? create("a", {0, 2}) : create("a", {0, 1}));
  }
  cluster_.settle();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(cluster_[rank].ended[1].code(), StatusCode::kMismatch);
    EXPECT_THAT(cluster_[rank].ended[1].text(),
                AllOf(HasSubstr("ranks differs: (0,1) on ranks 0, 1, 3; (0,2) on rank 2"),
                      HasSubstr("pset_create 'a'")));
  }
  EXPECT_EQ(make(2, "a", {0, 1}), 1u) << "a failed one uses no id";
}

TEST_P(ProcessSets, WhatIsNotOrderedByTheEndIsGivenUpEverywhere) {
  make(1, "a", {0, 1, 2, 3});
  for (int round = 0; round < 2; ++round) {  // known, and in full
    for (int rank = 0; rank < 4; ++rank) submit(rank, 10, allreduce("known", 1));
    cluster_.settle();
  }
  for (const int rank : {1, 2}) {
    submit(rank, 20, allreduce("known", 1));
    submit(rank, 21, allreduce("new", 1));
  }
  for (int rank = 0; rank < 4; ++rank) submit(rank, 22, allreduce("done", 1));
  ASSERT_TRUE(cluster_.at(3).join(1));
  submit_all(30, destroy(1));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ended_set(*last(rank).unit), 1u);
    EXPECT_TRUE(cluster_[rank].ended.count(22) == 0) << "all ranks have submitted it";
  }
  for (const int rank : {1, 2}) {
    EXPECT_EQ(cluster_[rank].ended[20].code(), StatusCode::kAborted);
    EXPECT_THAT(cluster_[rank].ended[21].text(),
                HasSubstr("process set 1 was destroyed while allreduce 'new' was missing on other "
                          "ranks"));
  }
  EXPECT_TRUE(cluster_[0].joins.empty());
}

TEST_P(ProcessSets, ReportsThatComeTooLateAreDropped) {
  make(1, "a", {1, 2, 3});
  for (int rank = 0; rank < 4; ++rank) submit(rank, 2, destroy(1));
  cluster_.hold(0, 3);
  cluster_.hold(2, 3);
  cluster_.settle();
  submit(3, 3, allreduce("late", 1));
  ASSERT_TRUE(cluster_.at(3).join(1));
  cluster_.settle();
  cluster_.release();
  cluster_.settle();
  EXPECT_EQ(cluster_[3].ended[3].code(), StatusCode::kAborted);
  for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(cluster_[rank].broken.empty());
}

TEST_P(ProcessSets, WithARankThatHasJoinedTheWorldTheyFailAtOnce) {
  make(1, "a", {0, 1});
  ASSERT_TRUE(cluster_.at(3).join(0));
  for (int rank = 0; rank < 3; ++rank) {
    submit(rank, 2, create("b", {0, 1}));
    submit(rank, 3, destroy(1));
  }
  cluster_.settle();
  for (int rank = 0; rank < 3; ++rank) {
    for (const Ticket ticket : {2u, 3u}) {
      EXPECT_EQ(cluster_[rank].ended[ticket].code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(cluster_[rank].ended[ticket].text(), HasSubstr("rank 3 has joined the world"));
    }
  }
}

TEST_P(ProcessSets, OneOfAnotherHostNeedsNoWire) {
  make(1, "a", {2, 3});
  cluster_.hold(0, 2);
  cluster_.hold(2, 0);
  const bool two_hosts = GetParam();
  for (Ticket ticket = 2; two_hosts && ticket < 6; ++ticket) {
    for (const int rank : {3, 2}) submit(rank, ticket, allreduce("x", 1));
    cluster_.settle();
    EXPECT_EQ(last(2).ticket, ticket);
    EXPECT_EQ(last(3).ticket, ticket);
  }
  EXPECT_EQ(cluster_.link(2, 0).size(), 0u);
}

TEST_P(ProcessSets, TheEndDoesNotWaitForWhatIsBehindARefusedCall) {
  make(1, "a", {0, 1, 2, 3});
  Unit refused = *allreduce("x", 1);
  refused.invalid = "root -1 is not a rank";
  cluster_.at(1).refuse(share(refused));
  submit(1, 2, allreduce("x", 1));
  submit_all(3, destroy(1));
  EXPECT_EQ(ended_set(*last(1).unit), 1u);
  EXPECT_EQ(cluster_[1].ended[2].code(), StatusCode::kAborted);
}

TEST_P(ProcessSets, DestroyedTwiceIsAnErrorOfTheSecond) {
  make(1, "a", {0, 1});
  submit_all(2, destroy(1));
  submit_all(3, destroy(1));
  EXPECT_EQ(cluster_[2].ended[3].code(), StatusCode::kInvalidArgument);
}

TEST_P(ProcessSets, AFarewellReachesAlsoSetsThatHaveJustEnded) {
  make(1, "a", {0, 3});
  for (const int rank : {0, 3}) submit(rank, 2, allreduce("x", 1));
  submit_all(3, destroy(1));
  cluster_.at(3).goodbye();
  cluster_.settle();
  const auto& left = cluster_[0].left;
  const auto of_set = std::find_if(left.begin(), left.end(),
                                   [](const SetClosed& one) { return one.process_set == 1; });
  ASSERT_NE(of_set, left.end());
  EXPECT_EQ(of_set->through, 1u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ProcessSets, ::testing::Bool(), [](const auto& which) {
  return std::string(which.param ? "TwoHosts" : "OneHost");
});

// One host with a board of three ranks.
class SlotSets : public ::testing::Test {
 protected:
  SlotSets() : cluster_(Topology({0, 0, 0})) {}
  // Ranks 1 and 2, without the leader.
  void make() {
    cluster_.submit_all(1, create("a", {1, 2}));
    cluster_.add_process_set(1, {1, 2});
    both(2, allreduce("big", 1, 100));
    both(3, allreduce("small", 1, 2));
  }
  void both(Ticket ticket, const UnitPtr& unit) {
    for (const int rank : {1, 2}) cluster_.submit(rank, ticket, unit);
    cluster_.settle();
  }
  SlotCluster cluster_;
};

TEST_F(SlotSets, ASetWithoutTheLeaderUsesSlotsAndNoFrames) {
  make();
  const std::size_t frames = cluster_.frames();
  for (Ticket ticket = 10; ticket < 200; ticket += 2) {
    both(ticket, allreduce("big", 1, 100));
    both(ticket + 1, allreduce("small", 1, 2));
    EXPECT_TRUE(cluster_[2].ended[ticket].is_ok());
    EXPECT_TRUE(cluster_[1].ended[ticket + 1].is_ok());
  }
  EXPECT_EQ(cluster_.frames(), frames);
}

TEST_F(SlotSets, AnIdleRankThatLagsBehindIsNamedBeforeTheLogIsFull) {
  make();
  cluster_.hold(0);
  EXPECT_FALSE(cluster_.board(0).log_fills());
  cluster_.release();
  cluster_.settle();
  SlotBoard& board = cluster_.board(0);
  for (std::size_t i = 0; !board.log_fills(); ++i) {
    ASSERT_LT(i, std::size_t{2} * board.slots());
    board.append({});
  }
  EXPECT_TRUE(board.is_laggard(1));
  EXPECT_GT(board.log_room(), 0u);
}

TEST_F(SlotSets, TheEndClosesTheSlotsAndGivesUpWhatLiesInThem) {
  make();
  for (const char* name : {"big", "small"}) {
    EXPECT_TRUE(
        cluster_.submit(1, name[0] == 'b' ? 4 : 5, allreduce(name, 1, name[0] == 'b' ? 100 : 2)));
  }
  cluster_.submit_all(6, destroy(1));
  EXPECT_EQ(cluster_[1].ended[4].code(), StatusCode::kAborted);
  EXPECT_EQ(cluster_[1].ended[5].code(), StatusCode::kAborted);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(cluster_[rank].ended[6].is_ok());
    EXPECT_TRUE(cluster_[rank].broken.empty());
  }
  cluster_.submit_all(7, allreduce("after"));
  EXPECT_TRUE(cluster_[0].ended[7].is_ok());
}

TEST_F(SlotSets, WhatAllHavePublishedBeforeTheEndIsFinished) {
  make();
  cluster_.hold(0);
  for (const int rank : {1, 2}) {
    EXPECT_TRUE(cluster_.submit(rank, 4, allreduce("big", 1, 100)));
    EXPECT_TRUE(cluster_.submit(rank, 5, allreduce("small", 1, 2)));
  }
  for (int rank = 0; rank < 3; ++rank) cluster_.submit(rank, 6, destroy(1));
  cluster_.settle();
  cluster_.release();
  cluster_.settle();
  for (const int rank : {1, 2}) {
    EXPECT_TRUE(cluster_[rank].ended[4].is_ok()) << cluster_[rank].ended[4].to_string();
    EXPECT_TRUE(cluster_[rank].ended[5].is_ok());
    EXPECT_TRUE(cluster_[rank].ended[6].is_ok());
  }
}

TEST_F(SlotSets, AfterAJoinTheUnitsGetTheirSlotsBack) {
  cluster_.submit_all(1, allreduce("x", 0, 100));
  for (Ticket epoch = 0; epoch < 2; ++epoch) {
    const Ticket first = 10 * (epoch + 1);
    ASSERT_TRUE(cluster_.at(0).join(0));
    for (Ticket i = 0; i < 2; ++i) {
      for (const int rank : {1, 2}) cluster_.submit(rank, first + i, allreduce("x", 0, 100));
      cluster_.settle();
      EXPECT_EQ(cluster_[1].absent[first + i], std::vector<int>{0});
    }
    for (const int rank : {2, 1}) ASSERT_TRUE(cluster_.at(rank).join(0));
    cluster_.settle();
    cluster_.submit_all(first + 2, allreduce("x", 0, 100));  // in full
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(cluster_.submit(rank, first + 3, allreduce("x", 0, 100))) << "no slot";
    }
    cluster_.settle();
    EXPECT_TRUE(cluster_[2].ended[first + 3].is_ok());
  }
}

}  // namespace
}  // namespace kolo::internal
