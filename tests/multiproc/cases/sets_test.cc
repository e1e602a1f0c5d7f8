// Situations of every collective, of process sets and of join, over one transport (case_launch.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/multiproc/cases/case_launch.h"

namespace kolo::test {
namespace {

TEST(Situation, S21) { expect_well(3, "S21", {}, 300); }
TEST(Situation, S22) { expect_well(3, "S22"); }
TEST(Situation, S24) { expect_well(3, "S24"); }
TEST(Situation, S25) { expect_well_by_all_algorithms(3, "S25"); }
TEST(Situation, S32) { expect_well(2, "S32"); }
TEST(Situation, S64) { expect_well_by_all_algorithms(2, "S64"); }

TEST(Sets, WhoIsNotInASetIsToldSo) { expect_well(3, "set-rules"); }
TEST(Sets, EndWithWorkInFlight) { expect_well(3, "set-in-flight"); }
TEST(Sets, OverlapWithoutAnOrder) { expect_well(3, "set-threads"); }
TEST(Sets, HaveSequenceNumbersOfTheirOwn) { expect_well(3, "set-numbers"); }
TEST(Sets, AreMadeAndEndedInCallbacks) { expect_well(3, "set-callbacks"); }
TEST(Sets, NeverHaveANumberAgain) { expect_well(3, "set-many"); }
TEST(Sets, AreToldOfAGroupThatIsRefused) { expect_well(3, "set-refused-group"); }

TEST(Join, UnevenSteps) { expect_well_by_all_algorithms(3, "join-uneven"); }
TEST(Join, FloatsWithAJoinedRank) { expect_well_by_all_algorithms(3, "join-floats"); }
TEST(Join, OtherKindsWithAJoinedRank) { expect_well_by_all_algorithms(3, "join-kinds"); }
TEST(Join, WhatIsRefused) { expect_well(2, "join-rules"); }
TEST(Join, OfOneSetLeavesTheOthersAlone) { expect_well(3, "join-sets"); }
TEST(Join, TellsItsCallbackOnce) { expect_well(3, "join-callback"); }

TEST(Init, AfterOnesThatFailed) { expect_well(2, "init-again"); }
TEST(Names, ComeBackAsAnotherKind) { expect_well_by_all_algorithms(3, "kinds-of-a-name"); }
TEST(Names, TwiceInAGroupLeaveNothing) { expect_well(3, "twice-in-a-group"); }

// Heartbeats are heard while an operation keeps its thread busy.
TEST(Liveness, AnOperationMayTakeLongerThanThePeerTimeout) {
  expect_well(2, "long-adasum", {"--peer-timeout-seconds", "0.5"});
}

// Two ranks of somewhat more than 2 GiB each, but for the larger ones.
class Wide : public ::testing::TestWithParam<const char*> {};

TEST_P(Wide, Above2To31ElementsAndBytes) {
  const std::string id = GetParam();
  // Adasum holds slices in f32 besides.
  std::size_t need_gib = 6;
  if (id == "wide-allgather-allocated") need_gib = 11;
  if (id == "wide-adasum-bytes") need_gib = 18;
  if (id == "wide-adasum") need_gib = 36;
  const std::string obstacle = obstacle_to_sizes(need_gib << 30, true);
  if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  // Filling and checking takes seconds, not alike on both ranks.
  expect_well(2, id,
              {"--stall-check-warning-time-seconds", "120", "--stall-check-shutdown-time-seconds",
               "600", "--peer-timeout-seconds", "10"},
              900);
}

INSTANTIATE_TEST_SUITE_P(Collectives, Wide,
                         ::testing::Values("wide-reduce-scatter", "wide-allgather",
                                           "wide-allgather-allocated", "wide-alltoall",
                                           "wide-broadcast", "wide-adasum-bytes", "wide-adasum"));

}  // namespace
}  // namespace kolo::test
