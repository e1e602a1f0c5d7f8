// The small tables of the coordinator: response cache, toggle book, readiness.
#include <gtest/gtest.h>

#include "base/check.h"
#include "coordinator/readiness.h"
#include "coordinator/response_cache.h"
#include "coordinator/toggle_book.h"
#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using Answer = ToggleBook::Answer;

TEST(ResponseCache, TheLeastRecentlyOrderedGoesFirst) {
  ResponseCache cache(2, false);
  const std::uint64_t a = cache.insert(allreduce("a")).id;
  const std::uint64_t b = cache.insert(allreduce("b")).id;
  EXPECT_FALSE(cache.victim().has_value());
  cache.touch(a);
  const std::uint64_t c = cache.insert(allreduce("c")).id;
  ASSERT_TRUE(cache.victim().has_value());
  EXPECT_EQ(cache.victim()->id, b);
  cache.erase(b);
  EXPECT_FALSE(cache.victim().has_value());
  EXPECT_EQ(cache.find({0, "b"}), nullptr);
  EXPECT_EQ(cache.find({0, "c"})->id, c);
  EXPECT_EQ(cache.size(), 2u);
}

TEST(ResponseCache, IdsAreNeverUsedTwiceAndSayWhoGaveThem) {
  ResponseCache root(1, false);
  ResponseCache host(1, true);
  const std::uint64_t first = root.insert(allreduce("a")).id;
  root.erase(first);
  EXPECT_GT(root.insert(allreduce("a")).id, first);
  EXPECT_FALSE(ResponseCache::is_host_id(first));
  EXPECT_TRUE(ResponseCache::is_host_id(host.insert(allreduce("a")).id));
}

TEST(ResponseCache, CapacityZeroIsOff) { EXPECT_FALSE(ResponseCache(0, false).enabled()); }

TEST(ToggleBook, AToggleCountsUntilOrderedAndIsStaleAfter) {
  ToggleBook book;
  book.introduce(2, allreduce("a"));
  EXPECT_EQ(book.hear(0, {2, false}), Answer::kStale);
  EXPECT_EQ(book.hear(0, {2, true}), Answer::kCounts);
  EXPECT_EQ(book.hear(0, {2, true}), Answer::kCounts) << "a level, until it is ordered";
  book.ordered(2, {});
  EXPECT_EQ(book.hear(0, {2, true}), Answer::kStale);
  EXPECT_EQ(book.hear(0, {2, false}), Answer::kCounts);
  EXPECT_EQ(book.hear(0, {4, false}), Answer::kUnknown);
}

TEST(ToggleBook, TheParityOfAnAbsentRankStays) {
  ToggleBook book;
  book.introduce(2, allreduce("a"));
  book.ordered(2, {});   // all have published `true`
  book.ordered(2, {1});  // rank 1 has joined, the others have published `false`
  EXPECT_EQ(book.hear(1, {2, true}), Answer::kStale);
  EXPECT_EQ(book.hear(1, {2, false}), Answer::kCounts);
  EXPECT_EQ(book.hear(0, {2, false}), Answer::kStale);
  book.ordered(2, {1});
  EXPECT_EQ(book.hear(1, {2, true}), Answer::kStale);
}

TEST(ToggleBook, ARetiredIdCountsOncePerRank) {
  ToggleBook book;
  book.introduce(2, allreduce("a"));
  book.retire(2, {1});
  EXPECT_FALSE(book.is_live(2));
  EXPECT_EQ(book.hear(1, {2, true}), Answer::kStale) << "counted before";
  EXPECT_EQ(book.hear(0, {2, true}), Answer::kCountsInFull);
  EXPECT_EQ(book.hear(0, {2, true}), Answer::kStale);
  EXPECT_EQ(*book.unit_of(2), *allreduce("a"));
}

TEST(ToggleBook, RetiredIdsAreForgottenWhenAllHaveFollowedTheirEviction) {
  ToggleBook book;
  book.introduce(2, allreduce("a"));
  book.introduce(6, allreduce("b"));
  book.retire(2, {});
  book.retire_slot();
  book.retire(6, {});
  book.acknowledge(2);
  EXPECT_TRUE(book.is_past(2));
  EXPECT_EQ(book.unit_of(2), nullptr);
  EXPECT_FALSE(book.is_past(6)) << "the third eviction is not followed yet";
  EXPECT_EQ(book.hear(0, {6, true}), Answer::kCountsInFull);
  book.acknowledge(3);
  EXPECT_TRUE(book.is_past(6));
  EXPECT_FALSE(book.is_past(8)) << "was never introduced";
}

TEST(ToggleBook, AnIdIsIntroducedOnce) {
  ToggleBook book;
  book.introduce(2, allreduce("a"));
  EXPECT_THROW(book.introduce(2, allreduce("b")), Bug);
}

TEST(ReadinessTable, FactsHeardAgainChangeNothing) {
  ReadinessTable table;
  const UnitKey key{0, "a"};
  EXPECT_TRUE(table.add(1, allreduce("a"), 0, 5ns));
  EXPECT_FALSE(table.add(1, allreduce("a"), 0, 9ns));
  EXPECT_FALSE(table.is_complete(key, {0, 1}));
  EXPECT_EQ(table.find(key)->missing({0, 1, 2}), (std::vector<int>{0, 2}));
  EXPECT_TRUE(table.add(0, allreduce("a", 0, 9), 0, 9ns)) << "another variant";
  EXPECT_TRUE(table.is_complete(key, {0, 1}));
  EXPECT_TRUE(table.set_ready(key));
  EXPECT_FALSE(table.set_ready(key));
  const auto taken = table.take(key);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->variants.size(), 2u);
  EXPECT_EQ(taken->first_seen, 5ns);
  EXPECT_EQ(taken->present, (std::vector<int>{0, 1}));
  EXPECT_FALSE(table.take(key).has_value());
}

}  // namespace
}  // namespace kolo::internal
