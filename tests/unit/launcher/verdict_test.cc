// The rule of the exit code, and the closing lines.
#include "launcher/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int exited(int code) { return code << 8; }

RankEnd end(int rank, int status, Nanos time, bool ended_by_kolorun = false) {
  return {rank, "host", 100 + rank, status, time, ended_by_kolorun, false, ""};
}

TEST(Verdict, SuccessIsZeroAndSilent) {
  EXPECT_EQ(judge({}).exit_code, 0);
  const Verdict verdict = judge({end(0, exited(0), 1s), end(1, exited(0), 2s)});
  EXPECT_EQ(verdict.exit_code, 0);
  EXPECT_THAT(verdict.lines, IsEmpty());
}

TEST(Verdict, FirstInTimeWinsWhateverTheOrderOfArrivalOrRank) {
  EXPECT_EQ(judge({end(0, exited(7), 2s), end(1, exited(5), 1s)}).exit_code, 5);
  EXPECT_EQ(
      judge({end(0, exited(0), 0s), end(1, SIGSEGV | 0x80, 1s), end(2, exited(1), 2s)}).exit_code,
      128 + SIGSEGV);
}

TEST(Verdict, AtTheSameInstantADeathBySignalIsTheCause) {
  EXPECT_EQ(judge({end(0, exited(1), 1s), end(1, SIGKILL, 1s)}).exit_code, 137);
  // Of two exits the agent knows the order.
  EXPECT_EQ(judge({end(1, exited(4), 1s), end(0, exited(3), 1s)}).exit_code, 4);
}

TEST(Verdict, WhoWasHarmedIsNotTheCauseHoweverEarlyAndBadItsEnd) {
  std::vector<RankEnd> ends = {end(0, SIGABRT, 1s), end(1, exited(3), 2s), end(2, exited(1), 1s)};
  ends[0].harmed = ends[2].harmed = true;
  const Verdict verdict = judge(ends);
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_THAT(verdict.lines[0], HasSubstr("rank 1 on host (pid 101) failed first"));
  ends[1] = end(1, exited(0), 2s);  // the one that left them did not fail
  EXPECT_EQ(judge(ends).exit_code, 128 + SIGABRT);
  ends[1] = end(1, SIGTERM, 2s, true);
  EXPECT_EQ(judge(ends).exit_code, 128 + SIGABRT);
}

TEST(Verdict, ALostRankThatDidNotFailIsNamedAsTheCause) {
  std::vector<RankEnd> ends = {end(0, exited(7), 2s), end(1, exited(0), 1s), end(2, SIGABRT, 2s)};
  ends[0].harmed = ends[2].harmed = true;
  Verdict verdict = judge(ends, {LostRank{1, 0, "rank 1 on host is lost: it ended\nso; look"}});
  EXPECT_EQ(verdict.exit_code, 128 + SIGABRT);
  ASSERT_EQ(verdict.lines.size(), 3u);
  EXPECT_EQ(verdict.lines[0],
            "rank 1 on host (pid 101) was lost (exit code 0), as rank 0 told: it ended so; look");
  EXPECT_EQ(verdict.lines[1], "rank 2 on host (pid 102) failed because of it: signal 6 (Aborted)");
  EXPECT_EQ(verdict.lines[2], "rank 0 on host (pid 100) failed because of it: exit code 7");
  ends[1] = end(1, SIGTERM, 3s, true);
  verdict = judge(ends, {LostRank{1, 2, "silent"}});
  EXPECT_EQ(verdict.exit_code, 128 + SIGABRT);
  EXPECT_EQ(verdict.lines.size(), 3u);
  EXPECT_EQ(verdict.lines[0],
            "rank 1 on host (pid 101) was lost (ended by kolorun: signal 15 (Terminated)), as "
            "rank 2 told: silent");
  ends[1] = end(1, exited(3), 3s);  // its own end tells enough
  verdict = judge(ends, {LostRank{1, 2, "silent"}});
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.lines[0], "rank 1 on host (pid 101) failed first: exit code 3");
  EXPECT_THAT(verdict.lines[1], HasSubstr("failed too"));
}

TEST(Verdict, AHarmWithoutALostRankSaysWhatEndedTheJob) {
  std::vector<RankEnd> ends = {end(0, exited(7), 2s), end(1, exited(0), 1s)};
  ends[0].harmed = true;
  EXPECT_EQ(judge(ends, {LostRank{-1, 0, "rank 1 ended the context: enough"}}).lines[0],
            "the job was ended, as rank 0 told: rank 1 ended the context: enough");
  EXPECT_EQ(judge(ends, {LostRank{-1, -1, "missing ranks 1, 2"}}).lines[0],
            "the job could not start: missing ranks 1, 2");
  EXPECT_EQ(judge(ends, {LostRank{1, -1, "it ended"}}).lines[0],
            "rank 1 on host (pid 101) kept the job from starting (exit code 0): it ended");
  EXPECT_EQ(judge(ends, {LostRank{5, 0, ""}}).lines[0], "rank 5 was lost, as rank 0 told");
}

TEST(Verdict, AnInterruptionIsNobodysFailure) {
  const std::vector<RankEnd> ends = {end(0, exited(1), 1s), end(1, SIGINT, 2s),
                                     end(2, SIGKILL, 3s, true), end(3, exited(0), 1s)};
  Verdict verdict = judge(ends, {std::nullopt, SIGINT});
  EXPECT_EQ(verdict.exit_code, 130);
  EXPECT_THAT(verdict.lines, ::testing::ElementsAre(
                                 "interrupted by the user (signal 2, Ctrl-C)",
                                 "rank 0 on host (pid 100) ended after that: exit code 1",
                                 "rank 2 on host (pid 102) ended by kolorun: signal 9 (Killed)"));
  verdict = judge({end(0, SIGTERM, 1s), end(1, SIGTERM, 1s)}, {std::nullopt, SIGTERM});
  EXPECT_EQ(verdict.exit_code, 143);
  EXPECT_THAT(verdict.lines,
              ::testing::ElementsAre("ended by signal 15 (Terminated), sent to kolorun"));
  verdict = judge({end(0, exited(0), 1s)}, {std::nullopt, SIGINT});  // it took it in good order
  EXPECT_EQ(verdict.exit_code, 0);
  EXPECT_THAT(verdict.lines, IsEmpty());
}

TEST(Verdict, RanksEndedByKolorunCountLast) {
  const Verdict verdict = judge({end(0, SIGTERM, 1s, true), end(3, exited(9), 2s),
                                 end(1, SIGKILL, 4s, true), end(2, exited(0), 3s, true)});
  EXPECT_EQ(verdict.exit_code, 9);
  ASSERT_EQ(verdict.lines.size(), 4u);
  EXPECT_EQ(verdict.lines[0], "rank 3 on host (pid 103) failed first: exit code 9");
  EXPECT_THAT(verdict.lines[1],
              AllOf(HasSubstr("rank 0"), HasSubstr("ended by kolorun: signal 15 (Terminated)")));
  EXPECT_THAT(verdict.lines[2], HasSubstr("told to end by kolorun: exit code 0"));
  EXPECT_THAT(verdict.lines[3], HasSubstr("ended by kolorun: signal 9 (Killed)"));
  EXPECT_EQ(judge({end(0, SIGKILL, 1s, true)}).exit_code, 137);
}

TEST(Verdict, RankThatCouldNotStart) {
  RankEnd missing = end(1, exited(127), 1s);
  missing.pid = 0;
  missing.error = "no such program";
  const Verdict verdict = judge({missing});
  EXPECT_EQ(verdict.exit_code, 127);
  EXPECT_EQ(verdict.lines[0], "rank 1 on host could not start: no such program");
}

TEST(Verdict, ManyRanksMakeFewLines) {
  std::vector<RankEnd> ends;
  for (int rank = 0; rank < 1000; ++rank) ends.push_back(end(rank, exited(1), 1s));
  const Verdict verdict = judge(ends);
  EXPECT_EQ(verdict.lines.size(), 17u);
  EXPECT_EQ(verdict.lines.back(), "and 984 more ranks");
}

}  // namespace
}  // namespace kolo::internal
