#include "coordinator/stall_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::size_t occurrences(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// The ranks disagree about a name: rank 0 waits for m/w, rank 1 for m_1/w.
TEST(StallDetector, S04OneWarningNamesBothAndTheLimitEndsBoth) {
  StallDetector stalls(1s, 5s);
  const std::vector<LateUnit> waiting = {{allreduce("m/w"), 0ms, {1}},
                                         {allreduce("m_1/w"), 200ms, {0}}};
  EXPECT_THAT(stalls.observe(waiting, 999ms).warning, IsEmpty());
  EXPECT_THAT(stalls.observe(waiting, 1s).warning,
              AllOf(HasSubstr("2 operations"), HasSubstr("'m/w' missing on rank 1 for 1.0 s"),
                    HasSubstr("'m_1/w' missing on rank 0 for 0.8 s")));
  for (Nanos now = 1s; now < 5s; now += 100ms) {
    const auto verdict = stalls.observe(waiting, now);
    EXPECT_THAT(verdict.warning, IsEmpty()) << "warned twice at " << now.count();
    EXPECT_THAT(verdict.expired, IsEmpty());
  }
  EXPECT_EQ(stalls.observe(waiting, 5s).expired, (std::vector<UnitKey>{{0, "m/w"}}));
  EXPECT_EQ(stalls.observe(waiting, 5200ms).expired.size(), 2u);
}

TEST(StallDetector, S39AtMostOneMessageASecondWithTenNamesUnder2KiB) {
  StallDetector stalls(1s, kNever);
  std::vector<LateUnit> waiting;
  std::vector<int> many(100);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = 100000 + static_cast<int>(i);
  int warnings = 0;
  Nanos last = -1h;
  for (int i = 0; i < 300; ++i) {
    const std::string name = "layer" + std::to_string(i) + std::string(300, 'x');
    waiting.push_back({allreduce(name), 10ms * i, many});
  }
  for (Nanos now = 0s; now < 5s; now += 10ms) {
    const std::string warning = stalls.observe(waiting, now).warning;
    if (warning.empty()) continue;
    ++warnings;
    EXPECT_GE(now - last, 1s);
    last = now;
    EXPECT_LT(warning.size(), 2048u);
    EXPECT_LE(occurrences(warning, "missing on"), 10u);
    EXPECT_THAT(warning, HasSubstr(" operations wait"));
  }
  EXPECT_GE(warnings, 2);
  EXPECT_LE(warnings, 5);
}

TEST(StallDetector, RemindsAfterTenTimesAsLong) {
  StallDetector stalls(1s, kNever);
  const std::vector<LateUnit> waiting = {{allreduce("w"), 0s, {1}}};
  EXPECT_FALSE(stalls.observe(waiting, 1s).warning.empty());
  EXPECT_TRUE(stalls.observe(waiting, 10900ms).warning.empty());
  EXPECT_FALSE(stalls.observe(waiting, 11s).warning.empty());
}

TEST(StallDetector, ANameThatWaitsAnewIsWarnedOfAnew) {
  StallDetector stalls(1s, kNever);
  EXPECT_FALSE(stalls.observe({{allreduce("w"), 0s, {1}}}, 1s).warning.empty());
  EXPECT_FALSE(stalls.observe({{allreduce("w"), 2s, {1}}}, 3s).warning.empty());
}

TEST(StallDetector, OffIsOff) {
  StallDetector stalls(kNever, kNever);
  const auto verdict = stalls.observe({{allreduce("w"), 0s, {1}}}, 1000h);
  EXPECT_TRUE(verdict.warning.empty());
  EXPECT_TRUE(verdict.expired.empty());
  EXPECT_EQ(stalls.next_look(0s, 5s), kNever);
}

TEST(StallDetector, LooksAgainWhenSomethingIsDue) {
  const StallDetector stalls(2s, 5s);
  EXPECT_EQ(stalls.next_look(1s, 1s), 3s);
  EXPECT_EQ(stalls.next_look(1s, 3s), 4s);
  EXPECT_EQ(stalls.next_look(1s, 5500ms), 6s);
}

}  // namespace
}  // namespace kolo::internal
