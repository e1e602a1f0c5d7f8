// The slots of a host: the board, the leader's side of it, and whole negotiations over it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/unit/coordinator/slot_cluster.h"
#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Topology one_host(int size) { return Topology(std::vector<int>(static_cast<std::size_t>(size))); }

std::string payload_at(SlotBoard& board, int rank, SlotMark mark, std::size_t bytes) {
  return {reinterpret_cast<const char*>(board.payload(rank, 0, mark)), bytes};
}
std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// ---- SlotBoard

TEST(SlotBoard, ShowsTheLastTwoRoundsOfAUnitWithTheirBytes) {
  SlotBoards boards(2, 2);
  EXPECT_FALSE(boards.of(1).shows(0, 0, {7, 1}));
  boards.of(0).publish(0, {7, 1}, bytes_of("one"));
  boards.of(0).publish(0, {7, 2}, bytes_of("two"));
  EXPECT_TRUE(boards.of(1).shows(0, 0, {7, 1}));
  EXPECT_TRUE(boards.of(1).shows(0, 0, {7, 2}));
  EXPECT_EQ(payload_at(boards.of(1), 0, {7, 1}, 3), "one");
  EXPECT_EQ(payload_at(boards.of(1), 0, {7, 2}, 3), "two");
  boards.of(0).publish(0, {7, 3});
  EXPECT_FALSE(boards.of(1).shows(0, 0, {7, 1}));
  EXPECT_FALSE(boards.of(1).shows(0, 1, {7, 3}));  // another slot
  EXPECT_FALSE(boards.of(1).shows(1, 0, {7, 3}));  // another rank
  EXPECT_EQ(boards.of(1).last_round(0, 0, 7), 3U);
  EXPECT_EQ(boards.of(1).last_round(0, 0, 9), 0U);
}

TEST(SlotBoard, AnEarlierUnitOfTheSlotIsNotMistakenForTheNextOne) {
  SlotBoards boards(2, 2);
  boards.of(0).publish(0, {7, 1});
  EXPECT_FALSE(boards.of(1).shows(0, 0, {9, 1}));
  boards.of(0).publish(0, {9, 1});
  EXPECT_FALSE(boards.of(1).shows(0, 0, {7, 1}));
}

TEST(SlotBoard, IsClosedFromARoundOnAlsoWhenRoundsWrapAround) {
  SlotBoards boards(2, 2);
  EXPECT_FALSE(boards.of(1).is_closed(0, {7, 1}));
  boards.of(0).close(0, {7, 2});
  EXPECT_FALSE(boards.of(1).is_closed(0, {7, 1}));
  EXPECT_TRUE(boards.of(1).is_closed(0, {7, 2}));
  EXPECT_TRUE(boards.of(1).is_closed(0, {7, 3}));
  EXPECT_FALSE(boards.of(1).is_closed(0, {9, 2}));
  EXPECT_FALSE(boards.of(1).is_closed(1, {7, 2}));
  constexpr std::uint32_t kLast = std::numeric_limits<std::uint32_t>::max();
  boards.of(0).close(0, {7, kLast});
  EXPECT_FALSE(boards.of(1).is_closed(0, {7, kLast - 1}));
  EXPECT_TRUE(boards.of(1).is_closed(0, {7, 0}));
}

TEST(SlotBoard, AnnouncementsArriveInOrderAndWrapAround) {
  SlotBoards boards(2, 2);
  for (std::uint32_t round = 1; round < 50; ++round) {
    EXPECT_FALSE(boards.of(0).next_announcement(1));
    boards.of(1).announce(0, {7, round});
    boards.of(1).announce(1, {round, 1});
    const auto first = boards.of(0).next_announcement(1);
    const auto second = boards.of(0).next_announcement(1);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->slot, 0U);
    EXPECT_EQ(first->id, 7U);
    EXPECT_EQ(second->slot, 1U);
    EXPECT_EQ(second->id, round);
  }
}

TEST(SlotBoard, TheLogShowsWhatWasFlushedAndWrapsAround) {
  SlotBoards boards(2, 2);
  SlotBoard& leader = boards.of(0);
  for (std::uint32_t id = 1; id < 50; ++id) {
    leader.append({id, id % 2, id % 3 == 0});
    EXPECT_FALSE(boards.of(1).next_entry());
    EXPECT_TRUE(leader.flush_log());
    EXPECT_FALSE(leader.flush_log());
    for (const int rank : {0, 1}) {
      const auto entry = boards.of(rank).next_entry();
      ASSERT_TRUE(entry);
      EXPECT_EQ(entry->id, id);
      EXPECT_EQ(entry->slot, id % 2);
      EXPECT_EQ(entry->ends_cut, id % 3 == 0);
      EXPECT_EQ(boards.of(rank).next_entry()->id, id);  // the same until it is followed
      boards.of(rank).followed();
      EXPECT_FALSE(boards.of(rank).next_entry());
    }
    EXPECT_EQ(leader.followed_by_all(), id);
  }
}

TEST(SlotBoard, TheLogHasRoomAgainWhenTheSlowestHasFollowed) {
  SlotBoards boards(2, 3);
  SlotBoard& leader = boards.of(0);
  const std::size_t room = leader.log_room();
  ASSERT_GT(room, 1U);
  for (std::size_t i = 0; i < room; ++i) leader.append({});
  leader.flush_log();
  EXPECT_EQ(leader.log_room(), 0U);
  for (const int rank : {0, 1}) {
    boards.of(rank).followed();
    boards.of(rank).followed();
  }
  EXPECT_EQ(leader.log_room(), 0U);
  boards.of(2).followed();
  EXPECT_EQ(leader.log_room(), 1U);
}

// ---- SlotLeader

UnitPtr allgather(const std::string& name) {
  return share(single(spec_of(name, {4}, DataType::kFloat32, OpKind::kAllgather)));
}

class LeaderOfSlots : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  void publish(int rank, std::uint32_t slot, SlotMark mark, bool announces) {
    boards_.of(rank).publish(slot, mark);
    if (announces) boards_.of(rank).announce(slot, mark);
  }
  void publish_all(std::uint32_t slot, SlotMark mark, bool announces) {
    for (int rank = 0; rank < kRanks; ++rank) publish(rank, slot, mark, announces);
  }
  // What the log shows to the leader since the last call.
  std::vector<std::uint32_t> follow() {
    std::vector<std::uint32_t> ids;
    boards_.of(0).flush_log();
    while (const auto entry = boards_.of(0).next_entry()) {
      ids.push_back(entry->id);
      if (entry->ends_cut) ids.push_back(0);
      boards_.of(0).followed();
    }
    return ids;
  }

  Topology topology_ = one_host(kRanks);
  SlotBoards boards_{4, kRanks};
  SlotLeader leader_{topology_, 0, boards_.of(0), FusionOptions{}, kNever};
};

TEST_F(LeaderOfSlots, GivesEachUnitASlotUntilThereIsNone) {
  std::set<std::uint32_t> slots;
  for (const std::uint64_t id : {1, 3, 5, 7}) {
    const auto slot = leader_.introduce(id, allreduce("u" + std::to_string(id)), false);
    ASSERT_TRUE(slot);
    slots.insert(*slot);
  }
  EXPECT_EQ(slots.size(), 4U);
  EXPECT_FALSE(leader_.introduce(9, allreduce("u9"), false));
  EXPECT_TRUE(leader_.has(7));
  EXPECT_FALSE(leader_.has(9));
}

TEST_F(LeaderOfSlots, OrdersWhatAllHaveAnnouncedInFusedCuts) {
  const auto a = *leader_.introduce(1, allreduce("a"), false);
  const auto g = *leader_.introduce(3, allgather("g"), false);
  const auto b = *leader_.introduce(5, allreduce("b"), false);
  publish_all(a, {1, 1}, true);
  publish_all(g, {3, 1}, true);
  publish(0, b, {5, 1}, true);
  publish(1, b, {5, 1}, true);
  EXPECT_TRUE(leader_.collect(Nanos(0)));
  EXPECT_TRUE(leader_.order());
  EXPECT_THAT(follow(), ElementsAre(1, 0, 3, 0));
  EXPECT_FALSE(leader_.collect(Nanos(0)));
  EXPECT_FALSE(leader_.order());
  publish_all(a, {1, 2}, true);
  publish_all(g, {3, 2}, true);
  publish(2, b, {5, 1}, true);
  leader_.collect(Nanos(0));
  EXPECT_TRUE(leader_.order());
  EXPECT_THAT(follow(), ElementsAre(1, 5, 0, 3, 0)) << "the all-reduces are one operation";
}

TEST_F(LeaderOfSlots, OrdersOnlyWhatTheLogHasRoomFor) {
  const auto a = *leader_.introduce(1, allreduce("a"), false);
  while (boards_.of(0).log_room() > 0) boards_.of(0).append({});
  publish_all(a, {1, 1}, true);
  leader_.collect(Nanos(0));
  EXPECT_FALSE(leader_.order());
  boards_.of(0).flush_log();
  for (int rank = 0; rank < kRanks; ++rank) {
    while (boards_.of(rank).next_entry()) boards_.of(rank).followed();
  }
  EXPECT_TRUE(leader_.order());
}

TEST_F(LeaderOfSlots, ClosesAnInlineUnitFromTheRoundThatNotAllHavePublished) {
  struct Case {
    int first_round_by;   // ranks 0 .. n-1 have published round 1
    int second_round_by;  // and round 2
    std::uint32_t closed_from;
    std::vector<int> taken;
  };
  const std::vector<Case> cases = {{0, 0, 1, {}}, {1, 0, 1, {0}}, {2, 0, 1, {0, 1}},
                                   {3, 0, 2, {}}, {3, 1, 2, {0}}, {3, 2, 2, {0, 1}},
                                   {3, 3, 3, {}}};
  for (const Case& one : cases) {
    SCOPED_TRACE(std::to_string(one.first_round_by) + " " + std::to_string(one.second_round_by));
    SlotBoards boards(4, kRanks);
    SlotLeader leader(topology_, 0, boards.of(0), FusionOptions{}, kNever);
    const auto slot = *leader.introduce(1, allreduce("a"), true);
    for (int rank = 0; rank < one.first_round_by; ++rank) boards.of(rank).publish(slot, {1, 1});
    for (int rank = 0; rank < one.second_round_by; ++rank) boards.of(rank).publish(slot, {1, 2});
    EXPECT_EQ(leader.close(1), one.taken);
    EXPECT_FALSE(leader.has(1));
    EXPECT_FALSE(boards.of(2).is_closed(slot, {1, one.closed_from - 1}));
    EXPECT_TRUE(boards.of(2).is_closed(slot, {1, one.closed_from}));
  }
}

TEST_F(LeaderOfSlots, ClosesAnOrderedUnitAfterItsLastOrder) {
  const auto a = *leader_.introduce(1, allreduce("a"), false);
  publish_all(a, {1, 1}, true);
  leader_.collect(Nanos(0));
  leader_.order();
  publish(1, a, {1, 2}, true);
  publish(2, a, {1, 2}, false);  // it counts although the announcement comes too late
  EXPECT_THAT(leader_.close(1), ElementsAre(1, 2));
  leader_.collect(Nanos(0));
  EXPECT_FALSE(leader_.order());
  EXPECT_THAT(follow(), ElementsAre(1, 0));
}

TEST_F(LeaderOfSlots, WhatIsReadyAndNotInTheLogIsTakenWhenItIsClosed) {
  const auto a = *leader_.introduce(1, allreduce("a"), false);
  publish_all(a, {1, 1}, true);
  leader_.collect(Nanos(0));
  EXPECT_THAT(leader_.close(1), ElementsAre(0, 1, 2));
  EXPECT_FALSE(leader_.order());
}

TEST_F(LeaderOfSlots, ASlotIsFreeOnceAllHaveFollowedItsEviction) {
  for (const std::uint64_t id : {1, 3, 5, 7}) {
    ASSERT_TRUE(leader_.introduce(id, allreduce("u" + std::to_string(id)), true));
  }
  leader_.close(3);
  EXPECT_FALSE(leader_.introduce(9, allreduce("n"), true));
  boards_.of(0).append({});
  leader_.closed_in_log(3);
  boards_.of(0).flush_log();
  EXPECT_FALSE(leader_.introduce(9, allreduce("n"), true));
  boards_.of(0).followed();
  boards_.of(2).followed();
  EXPECT_FALSE(leader_.introduce(9, allreduce("n"), true));
  boards_.of(1).followed();
  EXPECT_EQ(leader_.introduce(9, allreduce("n"), true), 1U);
}

TEST_F(LeaderOfSlots, KnowsWhoIsLateAndWhatIsUsed) {
  const auto a = *leader_.introduce(1, allreduce("a"), true);
  EXPECT_TRUE(leader_.used_since(1));
  EXPECT_FALSE(leader_.used_since(1));
  EXPECT_THAT(leader_.late(1s), IsEmpty());
  publish(0, a, {1, 1}, false);
  publish(1, a, {1, 1}, false);
  const auto late = leader_.late(2s);
  ASSERT_EQ(late.size(), 1U);
  EXPECT_THAT(late[0].missing, ElementsAre(2));
  EXPECT_EQ(late[0].since, Nanos(2s));
  EXPECT_EQ(leader_.late(3s).at(0).since, Nanos(2s));
  publish(2, a, {1, 1}, false);
  EXPECT_THAT(leader_.late(4s), IsEmpty());
  EXPECT_TRUE(leader_.used_since(1));
}

// ---- Whole negotiations

constexpr int kAll = 3;

// What any rank may know of one operation.
void expect_ends(SlotCluster& cluster, Ticket ticket, StatusCode code) {
  for (int rank = 0; rank < kAll; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    ASSERT_TRUE(cluster[rank].ended.contains(ticket));
    EXPECT_EQ(cluster[rank].ended[ticket].code(), code) << cluster[rank].ended[ticket].text();
  }
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
