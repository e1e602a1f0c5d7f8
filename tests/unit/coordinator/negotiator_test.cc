// Scenes of whole negotiations on one and on two hosts.
#include "coordinator/negotiator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/cluster.h"
#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Topology one_host(int size) { return Topology(std::vector<int>(static_cast<std::size_t>(size))); }
// Ranks 0, 1 on host 0; 2, 3 on host 1; process set 1 is host 1, process set 2 crosses.
Topology two_hosts() {
  Topology topology({0, 0, 1, 1});
  topology.add_process_set(1, {2, 3});
  topology.add_process_set(2, {1, 3});
  return topology;
}

std::vector<std::string> names_run(const Cluster::Rank& rank) {
  std::vector<std::string> names;
  for (const Plan& plan : rank.plans) {
    for (const PlannedUnit& planned : plan.units) {
      if (planned.run != 0) names.push_back(planned.unit->key.name);
    }
  }
  return names;
}

class Layouts : public ::testing::TestWithParam<bool> {
 protected:
  Topology topology() const { return GetParam() ? two_hosts() : one_host(4); }
};
INSTANTIATE_TEST_SUITE_P(OneAndTwoHosts, Layouts, ::testing::Bool(), [](const auto& layout) {
  return layout.param ? std::string("two") : std::string("one");
});

TEST_P(Layouts, OneOrderForAllWhateverTheOrderOfSubmission) {
  Cluster cluster(topology());
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  for (int step = 0; step < 3; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      for (std::size_t i = 0; i < names.size(); ++i) {
        const std::size_t place = (i + static_cast<std::size_t>(rank)) % names.size();
        ASSERT_TRUE(cluster.submit(rank, step * 4 + i + 1, allreduce(names[place])).is_ok());
        cluster.settle();
      }
    }
  }
  const auto order = names_run(cluster[0]);
  EXPECT_EQ(order.size(), 12u);
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(names_run(cluster[rank]), order);
}

TEST_P(Layouts, AMismatchReachesAllAndTheJobGoesOn) {
  Cluster cluster(topology());
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(cluster.submit(rank, 1, allreduce("g", 0, rank == 2 ? 5 : 4)).is_ok());
  }
  cluster.settle();
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(cluster[rank].ended.contains(1));
    EXPECT_EQ(cluster[rank].ended[1].code(), StatusCode::kMismatch);
    EXPECT_THAT(cluster[rank].ended[1].text(),
                HasSubstr("shape differs: (4) on ranks 0, 1, 3; (5) on rank 2"));
    ASSERT_TRUE(cluster.submit(rank, 2, allreduce("g")).is_ok());
  }
  cluster.settle();
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(cluster[rank].plans.size(), 1u);
}

TEST_P(Layouts, ARefusedSubmissionFailsTheOthersAndARetryWorks) {
  Cluster cluster(topology());
  Unit refused = *allreduce("g");
  refused.invalid = "the output is null";
  cluster.at(3).refuse(share(refused));
  ASSERT_TRUE(cluster.submit(3, 1, allreduce("g")).is_ok());
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(cluster.submit(rank, 1, allreduce("g")).is_ok());
  }
  cluster.settle();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(cluster[rank].ended[1].text(), HasSubstr("rank 3 refused it (the output is null)"));
    ASSERT_TRUE(cluster.submit(rank, 2, allreduce("g")).is_ok());
  }
  cluster.settle();
  EXPECT_TRUE(cluster[3].ended.empty());
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(cluster[rank].plans.size(), 1u);
}

TEST_P(Layouts, ATimeLimitFailsItEverywhereAlsoForTheLate) {
  Cluster cluster(topology());
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(cluster.submit(rank, 1, allreduce("g"), 10ms).is_ok());
  }
  cluster.settle();
  cluster.now = 10ms;
  cluster.tick_all();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(cluster[rank].ended[1].code(), StatusCode::kTimedOut);
    // With two hosts the root may not yet know of rank 2, whose leader waits for rank 3.
    EXPECT_THAT(cluster[rank].ended[1].text(),
                HasSubstr(GetParam() ? "missing on ranks 2, 3" : "missing on rank 3"));
  }
  ASSERT_TRUE(cluster.submit(3, 1, allreduce("g")).is_ok());
  cluster.settle();
  EXPECT_EQ(cluster[3].ended[1].code(), StatusCode::kTimedOut) << "it belongs to the failed one";
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(cluster.submit(rank, 2, allreduce("g")).is_ok());
  }
  cluster.settle();
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(cluster[rank].plans.size(), 1u);
}

TEST_P(Layouts, TwoFailedRoundsAreOwedTwice) {
  Cluster cluster(topology());
  for (Ticket round = 1; round <= 2; ++round) {
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(cluster.submit(rank, round, allreduce("g"), cluster.now + 10ms).is_ok());
    }
    cluster.settle();
    cluster.now += 10ms;
    cluster.tick_all();
  }
  for (Ticket round = 1; round <= 2; ++round) {
    ASSERT_TRUE(cluster.submit(3, round, allreduce("g")).is_ok());
    cluster.settle();
    EXPECT_EQ(cluster[3].ended[round].code(), StatusCode::kTimedOut) << "round " << round;
  }
}

TEST_P(Layouts, S04StallsWarnOnceThenEndBoth) {
  SequencerOptions options;
  options.stall_warning = 1s;
  options.stall_abort = 5s;
  Cluster cluster(topology(), options);
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(cluster.submit(rank, 1, allreduce(rank < 2 ? "m/w" : "m_1/w")).is_ok());
  }
  cluster.settle();
  for (; cluster.now < 4900ms; cluster.now += 50ms) cluster.tick_all();
  std::vector<std::string> warnings;
  for (int rank = 0; rank < 4; ++rank) {
    warnings.insert(warnings.end(), cluster[rank].warnings.begin(), cluster[rank].warnings.end());
    EXPECT_TRUE(cluster[rank].ended.empty());
  }
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("'m/w' missing on ranks 2, 3"),
                                 HasSubstr("'m_1/w' missing on ranks 0, 1")));
  for (; cluster.now < 6s; cluster.now += 50ms) cluster.tick_all();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(cluster[rank].ended[1].code(), StatusCode::kTimedOut);
  }
}

TEST_P(Layouts, JoinedRanksAreAbsentAndTheJoinEndsForAll) {
  Cluster cluster(topology());
  ASSERT_TRUE(cluster.submit(3, 1, allreduce("last")).is_ok());
  cluster.at(3).join(0);
  cluster.settle();
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(cluster.submit(rank, 1, allreduce("last")).is_ok());
    ASSERT_TRUE(cluster.submit(rank, 2, allreduce("more")).is_ok());
  }
  cluster.settle();
  ASSERT_EQ(names_run(cluster[3]), names_run(cluster[0]));
  for (const Plan& plan : cluster[0].plans) {
    for (const PlannedUnit& planned : plan.units) {
      const bool absent = planned.unit->key.name == "more";
      EXPECT_EQ(planned.absent, absent ? std::vector<int>{3} : std::vector<int>{});
    }
  }
  for (const int rank : {0, 2, 1}) {
    EXPECT_TRUE(cluster[3].joins.empty());
    cluster.at(rank).join(0);
    cluster.settle();
  }
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(cluster[rank].joins.size(), 1u);
    EXPECT_EQ(cluster[rank].joins[0].last_rank, 1);
    ASSERT_TRUE(cluster.submit(rank, 3, allreduce("more")).is_ok());
  }
  cluster.settle();
  EXPECT_TRUE(cluster[3].plans.back().units[0].absent.empty()) << "the next epoch";
}

TEST_P(Layouts, AbortReachesAllAndTheFirstCauseStays) {
  Cluster cluster(topology());
  ASSERT_TRUE(cluster.submit(1, 1, allreduce("g")).is_ok());
  cluster.settle();
  cluster.at(3).abort("no more data");
  cluster.settle();
  cluster.at(0).peer_lost(1, "connection closed");
  cluster.settle();
  EXPECT_EQ(cluster[1].ended[1].code(), StatusCode::kAborted);
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(cluster[rank].broken.size(), 1u) << rank;
    EXPECT_EQ(cluster[rank].broken[0].code(), StatusCode::kAborted);
    EXPECT_THAT(cluster[rank].broken[0].text(),
                AllOf(HasSubstr("rank 3"), HasSubstr("no more data")));
    EXPECT_EQ(cluster.submit(rank, 9, allreduce("h")).code(), StatusCode::kAborted);
    EXPECT_EQ(cluster.at(rank).next_deadline(0ns), kNever) << "nothing to wake up for";
  }
}

TEST_P(Layouts, GoodbyeCountsTheRunsThatItTakesPartIn) {
  Cluster cluster(topology());
  for (Ticket ticket = 1; ticket <= 3; ++ticket) {
    for (int rank = 0; rank < 4; ++rank) {
      ASSERT_TRUE(cluster.submit(rank, ticket, allreduce("g")).is_ok());
    }
    cluster.settle();
  }
  ASSERT_TRUE(cluster.submit(0, 4, allreduce("g")).is_ok());
  cluster.settle();
  cluster.at(3).goodbye();
  cluster.settle();
  for (int rank = 0; rank < 3; ++rank) {
    const auto& left = cluster[rank].left;
    const auto world = std::find_if(left.begin(), left.end(),
                                    [](const SetClosed& one) { return one.process_set == 0; });
    ASSERT_NE(world, left.end());
    EXPECT_EQ(world->rank, 3);
    EXPECT_EQ(world->through, 3u);
    EXPECT_EQ(cluster.submit(rank, 9, allreduce("h")).code(), StatusCode::kAborted);
  }
  EXPECT_EQ(cluster[0].ended[4].code(), StatusCode::kAborted) << "rank 3 will not submit it";
  cluster.at(0).peer_lost(3, "connection closed");
  cluster.settle();
  const SetClosed& last = cluster[0].left.back();
  EXPECT_EQ(last.through, 0u) << "it ended before it had done what it promised";
  EXPECT_EQ(last.status.code(), StatusCode::kPeerLost);
  EXPECT_EQ(cluster.submit(0, 10, allreduce("h")).code(), StatusCode::kAborted)
      << "the first word stays";
}

TEST_P(Layouts, AStaleGenerationDoesNothing) {
  Cluster old(topology());
  ASSERT_TRUE(old.submit(1, 1, allreduce("g")).is_ok());
  old.at(1).abort("over");
  old.hold(1, 0);
  old.settle();
  Cluster fresh(topology(), {}, 2);
  ASSERT_FALSE(old.link(1, 0).empty());
  for (const std::string& bytes : old.link(1, 0)) {
    EXPECT_TRUE(fresh.at(0).receive(1, bytes, 0ns).is_ok());
  }
  EXPECT_TRUE(fresh.at(0).drain(0ns).empty());
  EXPECT_TRUE(fresh.at(0).broken().is_ok());
}

TEST(Negotiator, SetsOfOneHostNeedNoOtherHost) {
  Cluster cluster(two_hosts());
  cluster.hold(2, 0);
  cluster.hold(0, 2);
  for (Ticket ticket = 1; ticket <= 3; ++ticket) {
    for (const int rank : {2, 3}) {
      ASSERT_TRUE(cluster.submit(rank, ticket, allreduce("local", 1)).is_ok());
    }
    cluster.settle();
    for (const int rank : {2, 3}) EXPECT_EQ(cluster[rank].plans.size(), ticket);
  }
  EXPECT_EQ(cluster.frames_sent(2, 0), 0u);
}

// The root leaves: a set inside the other host lives on, one that crosses hosts has lost its
// sequencer.
TEST(Negotiator, SetsThatNeedTheLeaverEndAndOthersLiveOn) {
  Cluster cluster(two_hosts());
  ASSERT_TRUE(cluster.submit(1, 1, allreduce("early", 2)).is_ok());
  cluster.settle();
  cluster.at(0).goodbye();
  cluster.settle();
  EXPECT_EQ(cluster[1].ended[1].code(), StatusCode::kAborted);
  for (const int rank : {1, 3}) {
    EXPECT_EQ(cluster.submit(rank, 2, allreduce("y", 2)).code(), StatusCode::kAborted);
  }
  Unit refused = *allreduce("x", 1);
  refused.invalid = "bad";
  cluster.at(2).refuse(share(refused));
  ASSERT_TRUE(cluster.submit(3, 1, allreduce("x", 1)).is_ok());
  cluster.settle();
  EXPECT_EQ(cluster[3].ended[1].code(), StatusCode::kMismatch);
  for (const int rank : {2, 3}) {
    ASSERT_TRUE(cluster.submit(rank, 3, allreduce("z", 1)).is_ok());
  }
  cluster.settle();
  for (const int rank : {2, 3}) EXPECT_EQ(cluster[rank].plans.size(), 1u);
}

// A leader in no set leaves: what crosses hosts with ranks of its host ends, the rest lives on.
TEST(Negotiator, ALeaderLeavesThatIsInNoSet) {
  Cluster cluster(two_hosts());
  ASSERT_TRUE(cluster.submit(3, 1, allreduce("early", 2)).is_ok());
  cluster.settle();
  cluster.at(2).goodbye();
  cluster.settle();
  EXPECT_EQ(cluster[3].ended[1].code(), StatusCode::kAborted);
  EXPECT_EQ(cluster.submit(1, 1, allreduce("y", 2)).code(), StatusCode::kAborted);
}

TEST(Negotiator, TheSequencersCutsCountNotOnesOwn) {
  SequencerOptions options;
  options.fusion = {1 << 20, 1 << 20};
  Cluster cluster(two_hosts(), options);
  for (int rank = 0; rank < 4; ++rank) {
    for (Ticket ticket = 1; ticket <= 3; ++ticket) {
      ASSERT_TRUE(cluster.submit(rank, ticket, allreduce("t" + std::to_string(ticket))).is_ok());
    }
  }
  cluster.settle();
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(cluster[rank].plans.size(), 1u);
    EXPECT_EQ(cluster[rank].plans[0].cuts, (std::vector<std::vector<std::uint32_t>>{{0, 1, 2}}));
  }
}

}  // namespace
}  // namespace kolo::internal
