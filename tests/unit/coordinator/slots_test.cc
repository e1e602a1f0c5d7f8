// Whole negotiations over the slots of a host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/slot_cluster.h"
#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Topology one_host(int size) { return Topology(std::vector<int>(static_cast<std::size_t>(size))); }

constexpr int kAll = 3;

// What any rank may know of one operation.
void expect_ends(SlotCluster& cluster, Ticket ticket, StatusCode code) {
  for (int rank = 0; rank < kAll; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    ASSERT_TRUE(cluster[rank].ended.contains(ticket));
    EXPECT_EQ(cluster[rank].ended[ticket].code(), code) << cluster[rank].ended[ticket].text();
  }
}

UnitPtr allgather(const std::string& name) {
  return share(single(spec_of(name, {4}, DataType::kFloat32, OpKind::kAllgather)));
}

UnitPtr large(const std::string& name) { return allreduce(name, 0, 64); }

TEST(Slots, ASteadyStateSendsNoFrames) {
  SlotCluster cluster(one_host(kAll));
  const std::vector<UnitPtr> units = {allreduce("a"), large("b"), large("c"), allgather("d")};
  Ticket ticket = 0;
  for (const UnitPtr& unit : units) cluster.submit_all(++ticket, unit);
  const std::size_t before = cluster.frames();
  EXPECT_GT(before, 0U);
  for (int step = 0; step < 50; ++step) {
    for (int rank = 0; rank < kAll; ++rank) {
      for (std::size_t i = 0; i < units.size(); ++i) {
        const std::size_t place = (i + static_cast<std::size_t>(rank)) % units.size();
        ASSERT_TRUE(
            cluster.submit(rank, ticket + 1 + place, units[place], kNever,
                           place == 0 ? std::string(16, static_cast<char>('0' + rank)) : ""));
      }
    }
    cluster.settle();
    for (std::size_t i = 0; i < units.size(); ++i) expect_ends(cluster, ++ticket, StatusCode::kOk);
    EXPECT_THAT(cluster[2].gathered[ticket - 3],
                ElementsAre(std::string(16, '0'), std::string(16, '1'), std::string(16, '2')));
  }
  EXPECT_EQ(cluster.frames(), before);
  EXPECT_EQ(cluster[1].order, cluster[0].order);
  EXPECT_EQ(cluster[2].order, cluster[0].order);
  EXPECT_THAT(cluster[0].order.back(), AnyOf("b+c", "c+b"));
}

class InlineOrOrdered : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    cluster_.submit_all(1, unit());
    cluster_.submit_all(2, unit());
  }
  [[nodiscard]] UnitPtr unit() const { return GetParam() ? allreduce("u") : large("u"); }

  SlotCluster cluster_{one_host(kAll)};
};
INSTANTIATE_TEST_SUITE_P(Both, InlineOrOrdered, ::testing::Bool(), [](const auto& which) {
  return which.param ? std::string("Inline") : std::string("Ordered");
});

TEST_P(InlineOrOrdered, AnotherSignatureIsAMismatchOnAllAndTheNextOneRuns) {
  EXPECT_TRUE(cluster_.submit(0, 3, unit()));
  EXPECT_FALSE(cluster_.submit(1, 3, allreduce("u", 0, 5)));
  cluster_.settle();
  EXPECT_TRUE(cluster_[0].ended.count(3) == 0);
  cluster_.submit(2, 3, unit());
  cluster_.settle();
  expect_ends(cluster_, 3, StatusCode::kMismatch);
  cluster_.submit_all(4, unit());
  expect_ends(cluster_, 4, StatusCode::kOk);
  cluster_.submit_all(5, unit());
  expect_ends(cluster_, 5, StatusCode::kOk);
}

TEST_P(InlineOrOrdered, WhoPublishesTooLateSaysItAgain) {
  cluster_.hold(2);
  EXPECT_TRUE(cluster_.submit(0, 3, unit()));
  EXPECT_FALSE(cluster_.submit(1, 3, allreduce("u", 0, 5)));
  cluster_.settle();
  EXPECT_TRUE(cluster_.submit(2, 3, unit())) << "rank 2 has not heard that the slot is closed";
  cluster_.settle();
  EXPECT_TRUE(cluster_[0].ended.count(3) == 0);
  cluster_.release();
  cluster_.settle();
  expect_ends(cluster_, 3, StatusCode::kMismatch);
}

TEST_P(InlineOrOrdered, ARefusalFailsTheOthersAndTheNextOneRuns) {
  EXPECT_TRUE(cluster_.submit(0, 3, unit()));
  Unit refused = *unit();
  refused.invalid = "the output is null";
  cluster_.refuse(1, share(refused));
  cluster_.submit(2, 3, unit());
  cluster_.settle();
  for (const int rank : {0, 2}) {
    EXPECT_EQ(cluster_[rank].ended[3].code(), StatusCode::kMismatch);
    EXPECT_THAT(cluster_[rank].ended[3].text(), HasSubstr("the output is null"));
  }
  cluster_.submit_all(4, unit());
  expect_ends(cluster_, 4, StatusCode::kOk);
}

TEST_P(InlineOrOrdered, ATimeLimitFailsItOnAllAlsoOnWhoComesLate) {
  EXPECT_TRUE(cluster_.submit(0, 3, unit()));
  EXPECT_TRUE(cluster_.submit(1, 3, unit(), 10ms));
  cluster_.now = 11ms;
  cluster_.tick_all();
  EXPECT_EQ(cluster_[0].ended[3].code(), StatusCode::kTimedOut);
  EXPECT_THAT(cluster_[0].ended[3].text(), HasSubstr("missing on rank 2"));
  cluster_.submit(2, 3, unit());
  cluster_.settle();
  expect_ends(cluster_, 3, StatusCode::kTimedOut);
  cluster_.submit_all(4, unit());
  expect_ends(cluster_, 4, StatusCode::kOk);
}

TEST_P(InlineOrOrdered, ATimeLimitThatPassesWhenAllHavePublishedChangesNothing) {
  cluster_.hold(1);
  for (int rank = 0; rank < kAll; ++rank) cluster_.submit(rank, 3, unit(), 10ms);
  cluster_.settle();
  cluster_.now = 11ms;
  cluster_.release();
  cluster_.tick_all();
  expect_ends(cluster_, 3, StatusCode::kOk);
  cluster_.submit_all(4, unit());
  expect_ends(cluster_, 4, StatusCode::kOk);
}

TEST_P(InlineOrOrdered, AFarewellRightAfterTheLastOneSpoilsNothing) {
  cluster_.hold(2);
  for (int rank = 0; rank < kAll; ++rank) cluster_.submit(rank, 3, unit());
  cluster_.settle();
  EXPECT_EQ(cluster_[1].ended[3].code(), StatusCode::kOk);
  cluster_.at(1).goodbye();
  cluster_.settle();
  cluster_.release();
  cluster_.settle();
  expect_ends(cluster_, 3, StatusCode::kOk);
  ASSERT_EQ(cluster_[2].left.size(), 1U);
  EXPECT_EQ(cluster_[2].left[0].rank, 1);
  EXPECT_EQ(cluster_[2].left[0].through, GetParam() ? 1U : 3U);
}

TEST_P(InlineOrOrdered, AnAbortEndsWhatIsPublished) {
  cluster_.submit(0, 3, unit());
  cluster_.submit(1, 3, unit());
  cluster_.at(2).abort("enough");
  cluster_.settle();
  for (const int rank : {0, 1}) {
    EXPECT_EQ(cluster_[rank].ended[3].code(), StatusCode::kAborted);
    EXPECT_EQ(cluster_[rank].broken.size(), 1U);
  }
}

TEST_P(InlineOrOrdered, StallsAreWarnedOfAndEnded) {
  SequencerOptions options;
  options.stall_warning = 2s;
  options.stall_abort = 6s;
  SlotCluster cluster(one_host(kAll), options);
  cluster.submit_all(1, unit());
  cluster.submit(0, 2, unit());
  cluster.submit(1, 2, unit());
  cluster.settle();
  for (int tenths = 0; tenths < 40; ++tenths) {
    cluster.now += 100ms;
    cluster.tick_all();
  }
  ASSERT_EQ(cluster[0].warnings.size(), 1U);
  EXPECT_THAT(cluster[0].warnings[0], HasSubstr("'u' missing on rank 2"));
  EXPECT_TRUE(cluster[0].ended.count(2) == 0);
  for (int tenths = 0; tenths < 40; ++tenths) {
    cluster.now += 100ms;
    cluster.tick_all();
  }
  cluster.submit(2, 2, unit());
  cluster.settle();
  expect_ends(cluster, 2, StatusCode::kTimedOut);
}

// The word of a time limit goes by frame, and what it is about is over before it arrives.
TEST(Slots, ATimeLimitOfAnEarlierRoundDoesNotMeetTheNextOne) {
  SlotCluster cluster(one_host(kAll));
  const UnitPtr unit = allreduce("u");
  cluster.submit_all(1, unit);
  cluster.submit(0, 2, unit);
  cluster.submit(1, 2, unit, 10ms);
  cluster.settle();
  cluster.hold(0);
  cluster.now = 11ms;
  cluster.tick(1);
  cluster.submit(2, 2, unit);
  cluster.settle();
  EXPECT_EQ(cluster[1].ended[2].code(), StatusCode::kOk);
  EXPECT_TRUE(cluster.submit(1, 3, unit));
  cluster.release();
  cluster.settle();
  cluster.submit(0, 3, unit);
  cluster.submit(2, 3, unit);
  cluster.settle();
  expect_ends(cluster, 3, StatusCode::kOk);
}

TEST(Slots, ATimeLimitOfASubmissionInFullDoesNotMeetARound) {
  SlotCluster cluster(one_host(kAll));
  const UnitPtr unit = allreduce("u");
  cluster.submit(1, 1, unit, 10ms);
  cluster.settle();
  cluster.hold(1);
  cluster.submit(0, 1, unit);
  cluster.submit(2, 1, unit);
  cluster.settle();
  cluster.hold(0);
  cluster.now = 11ms;
  cluster.tick(1);
  cluster.release(1);
  cluster.settle();
  EXPECT_EQ(cluster[1].ended[1].code(), StatusCode::kOk);
  EXPECT_TRUE(cluster.submit(1, 2, unit));
  cluster.release();
  cluster.settle();
  cluster.submit(0, 2, unit);
  cluster.submit(2, 2, unit);
  cluster.settle();
  expect_ends(cluster, 2, StatusCode::kOk);
}

TEST_P(InlineOrOrdered, AJoinWaitsForWhatWasPublishedTooLate) {
  cluster_.hold(2);
  cluster_.submit(0, 3, unit());
  cluster_.at(1).join(0);
  cluster_.settle();
  EXPECT_TRUE(cluster_.submit(2, 3, unit())) << "rank 2 has not heard that the slot is closed";
  cluster_.at(2).join(0);
  cluster_.release();
  cluster_.settle();
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(cluster_[rank].ended.contains(3));
    EXPECT_EQ(cluster_[rank].ended[3].code(), StatusCode::kOk);
    EXPECT_THAT(cluster_[rank].absent[3], ElementsAre(1));
  }
}

TEST(Slots, EvictionsMeetSubmissionsUnderWay) {
  for (const std::uint32_t slots : {2U, 16U}) {
    SequencerOptions options;
    options.cache_capacity = 2;
    SlotCluster cluster(one_host(kAll), options, slots);
    const std::vector<UnitPtr> units = {allreduce("a"), large("b"), allreduce("c")};
    Ticket ticket = 0;
    for (int step = 0; step < 40; ++step) {
      // Rank 2 sees none of it until the others can do no more without it.
      cluster.hold(2);
      for (std::size_t i = 0; i < units.size(); ++i) {
        for (int rank = 0; rank < kAll; ++rank) {
          const std::size_t place = (i + static_cast<std::size_t>(rank * step)) % units.size();
          cluster.submit(rank, ticket + 1 + place, units[place]);
          cluster.settle();
        }
      }
      cluster.release();
      cluster.settle();
      for (std::size_t i = 0; i < units.size(); ++i) {
        expect_ends(cluster, ++ticket, StatusCode::kOk);
      }
    }
    EXPECT_EQ(cluster[1].order, cluster[0].order);
    EXPECT_EQ(cluster[2].order, cluster[0].order);
  }
}

}  // namespace
}  // namespace kolo::internal
