// The pure parts of the chaos harness: that a seed says everything, and that the judge sees what is
// wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <kolo/kolo.h>

#include <set>

#include "tests/chaos/judge.h"

namespace kolo::chaos {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kMs = 1'000'000;

TEST(Plan, IsAFunctionOfItsSeed) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    EXPECT_EQ(text_of(draw_plan(seed, Road::kHosts, std::nullopt)),
              text_of(draw_plan(seed, Road::kHosts, std::nullopt)));
  }
}

TEST(Plan, KillsEveryRankAtEveryMoment) {
  std::set<std::pair<int, Moment>> seen;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Plan plan = draw_plan(seed, Road::kShm, Fault::kKill);
    seen.insert({plan.victim, plan.moment});
  }
  EXPECT_EQ(seen.size(), 4u * 5u);
}

TEST(Plan, BreaksWiresOnlyWhereThereAreSome) {
  bool broke = false;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Fault fault = draw_plan(seed, Road::kShm, std::nullopt).fault;
    EXPECT_TRUE(fault != Fault::kLink && fault != Fault::kDrop && fault != Fault::kLossy);
    const Fault other = draw_plan(seed, Road::kHosts, std::nullopt).fault;
    broke = broke || other == Fault::kLink || other == Fault::kDrop;
  }
  EXPECT_TRUE(broke);
}

TEST(Plan, WordsAreReadBack) {
  for (const char* word : {"kill", "freeze", "pause", "slow", "link", "drop", "fail", "limit",
                           "disk", "clock", "lossy", "die"}) {
    ASSERT_TRUE(fault_of(word).has_value()) << word;
    EXPECT_STREQ(word_of(*fault_of(word)), word);
  }
  EXPECT_FALSE(fault_of("flood").has_value());
  EXPECT_FALSE(road_of("").has_value());
}

// A kill of rank 2 that all survivors were told of as they should.
Observed right_kill() {
  Observed seen;
  seen.plan = draw_plan(1, Road::kShm, Fault::kKill);
  seen.plan.moment = Moment::kTransfer;
  seen.plan.victim = 2;
  seen.plan.by_kolorun = true;
  seen.struck = true;
  seen.fault_began = seen.fault_ended = 1000 * kMs;
  for (int rank = 0; rank < 4; ++rank) {
    Account account;
    account.phase = rank == 2 ? Phase::kSteps : Phase::kDone;
    account.steps = 5;
    if (rank != 2) {
      account.status = KOLO_PEER_LOST;
      account.failed_in = Phase::kSteps;
      account.entered = 990 * kMs;
      account.failed = account.pending_ended = 1001 * kMs;
      account.error = "peer lost: rank 2 on here is lost";
    }
    seen.ranks.push_back(account);
  }
  seen.exit_codes = {137};
  return seen;
}

TEST(Judge, AcceptsWhatIsRight) { EXPECT_THAT(judge(right_kill()), IsEmpty()); }

TEST(Judge, SeesASurvivorThatWasNotTold) {
  Observed seen = right_kill();
  seen.ranks[1].status = KOLO_OK;
  EXPECT_THAT(judge(seen), ::testing::ElementsAre(HasSubstr("rank 1: was told of no loss")));
}

TEST(Judge, SeesLatenessWrongNamesAndWrongKinds) {
  Observed seen = right_kill();
  seen.ranks[0].failed = 2100 * kMs;
  seen.ranks[1].error = "peer lost: rank 3";
  seen.ranks[3].status = KOLO_INTERNAL;
  EXPECT_THAT(judge(seen), ::testing::ElementsAre(HasSubstr("rank 0: was told after 1100 ms"),
                                                  HasSubstr("rank 1: does not name rank 2"),
                                                  HasSubstr("rank 3: not a lost peer")));
}

TEST(Judge, SeesHangsSignalsAndLeftovers) {
  Observed seen = right_kill();
  seen.ranks[0].phase = Phase::kShutdown;
  seen.exit_codes = {139};
  seen.leftovers = {"process 7"};
  EXPECT_THAT(judge(seen),
              ::testing::ElementsAre(HasSubstr("rank 0: did not end"), HasSubstr("exit code 139"),
                                     HasSubstr("left behind: process 7")));
}

TEST(Judge, ASilenceHasAnEarliestTimeToo) {
  Observed seen = right_kill();
  seen.plan.fault = Fault::kFreeze;
  seen.plan.peer_timeout_ms = 500;
  seen.exit_codes = {0};
  seen.ranks[2] = seen.ranks[0];
  seen.ranks[0].failed = 1499 * kMs;
  seen.ranks[1].failed = 1999 * kMs;
  seen.ranks[3].failed = 2001 * kMs;
  for (Account& rank : seen.ranks) rank.pending_ended = rank.failed;
  EXPECT_THAT(judge(seen), ::testing::ElementsAre(HasSubstr("rank 0: was told after 499 ms"),
                                                  HasSubstr("rank 3: was told after 1001 ms")));
}

TEST(Judge, WhatIsHarmlessMustNotFail) {
  Observed seen = right_kill();
  seen.plan.fault = Fault::kPause;
  seen.exit_codes = {0};
  for (Account& rank : seen.ranks) {
    rank.status = KOLO_OK;
    rank.phase = Phase::kDone;
  }
  EXPECT_THAT(judge(seen), IsEmpty());
  seen.ranks[1].status = KOLO_PEER_LOST;
  EXPECT_THAT(judge(seen), ::testing::ElementsAre(HasSubstr("rank 1: must not fail")));
}

TEST(Latencies, CountCallsThatCameLaterByThemselves) {
  Observed seen = right_kill();
  seen.ranks[3].entered = 1000 * kMs + kMs / 2;
  const std::vector<Latency> found = latencies(seen);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].ns, kMs);
  EXPECT_FALSE(found[0].called_later);
  EXPECT_EQ(found[2].ns, kMs / 2);
  EXPECT_TRUE(found[2].called_later);
}

}  // namespace
}  // namespace kolo::chaos
