// The slot board, and the leader's side of it.
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

}  // namespace
}  // namespace kolo::internal
