// The shards of an epoch: disjoint, together complete, the same order for all ranks, for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "kolo/kolo.hpp"
#include "tests/unit/training/refused.h"

namespace {

using kolo::ShardSampler;
using kolo::Tail;
using testing::ElementsAre;
using Places = std::vector<std::size_t>;

std::vector<Places> shards_of(std::size_t examples, int size, std::uint64_t seed, Tail tail,
                              std::uint64_t epoch, std::size_t consumed = 0) {
  std::vector<Places> shards;
  for (int place = 0; place < size; ++place) {
    const ShardSampler sampler(examples, place, size, seed, tail);
    shards.push_back(sampler.shard(epoch, consumed));
    EXPECT_EQ(shards.back().size(), sampler.shard_size(consumed));
  }
  return shards;
}

// How often each example is used.
std::vector<int> uses_of(const std::vector<Places>& shards, std::size_t examples) {
  std::vector<int> uses(examples);
  for (const Places& shard : shards) {
    for (const std::size_t place : shard) ++uses.at(place);
  }
  return uses;
}

TEST(ShardSampler, ShardsAreDisjointAndCompleteButForTheTail) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int run = 0; run < 300; ++run) {
    const std::size_t examples = random() % 200;
    const int size = 1 + static_cast<int>(random() % 9);
    const std::size_t rest = examples % static_cast<std::size_t>(size);
    const std::uint64_t epoch = random() % 5;
    SCOPED_TRACE(std::to_string(examples) + " examples, " + std::to_string(size) + " ranks");

    const auto kept = shards_of(examples, size, seed, Tail::keep, epoch);
    EXPECT_THAT(uses_of(kept, examples), testing::Each(1));
    for (const Places& shard : kept) {
      EXPECT_LE(kept.back().size(), shard.size());
      EXPECT_LE(shard.size(), kept.back().size() + 1);
    }

    const auto dropped = shards_of(examples, size, seed, Tail::drop, epoch);
    const std::vector<int> once = uses_of(dropped, examples);
    EXPECT_EQ(static_cast<std::size_t>(std::count(once.begin(), once.end(), 0)), rest);
    EXPECT_EQ(std::accumulate(once.begin(), once.end(), std::size_t{0}), examples - rest);
    for (const Places& shard : dropped) EXPECT_EQ(shard.size(), dropped[0].size());

    const auto padded = shards_of(examples, size, seed, Tail::pad, epoch);
    const std::vector<int> uses = uses_of(padded, examples);
    const std::size_t repeated = rest == 0 ? 0 : static_cast<std::size_t>(size) - rest;
    EXPECT_TRUE(std::all_of(uses.begin(), uses.end(), [](int n) { return n >= 1; }));
    EXPECT_EQ(std::accumulate(uses.begin(), uses.end(), std::size_t{0}), examples + repeated);
    for (const Places& shard : padded) EXPECT_EQ(shard.size(), padded[0].size());
  }
}

TEST(ShardSampler, TheOrderFollowsFromSeedAndEpochAlone) {
  // Numbers for ever: whoever changes the generator changes everybody's training.
  EXPECT_THAT(ShardSampler(8, 0, 1, 1, Tail::keep).order(0), ElementsAre(2, 6, 3, 5, 1, 4, 0, 7));
  const ShardSampler first(1000, 0, 4, 7, Tail::keep);
  const ShardSampler other(1000, 2, 3, 7, Tail::pad);
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    EXPECT_EQ(first.order(epoch), other.order(epoch));
    EXPECT_NE(first.order(epoch), first.order(epoch + 1));
  }
  EXPECT_NE(first.order(0), ShardSampler(1000, 0, 4, 8, Tail::keep).order(0));
  // Seed and epoch do not mix up: epoch 1 of seed 7 is not epoch 0 of seed 8.
  EXPECT_NE(first.order(1), ShardSampler(1000, 0, 4, 8, Tail::keep).order(0));
}

TEST(ShardSampler, EveryPlaceIsAsLikely) {
  constexpr std::size_t kExamples = 6;
  constexpr int kEpochs = 6000;
  const ShardSampler sampler(kExamples, 0, 1, 3, Tail::keep);
  std::map<std::pair<std::size_t, std::size_t>, int> seen;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Places order = sampler.order(static_cast<std::uint64_t>(epoch));
    for (std::size_t i = 0; i < kExamples; ++i) ++seen[{i, order[i]}];
  }
  EXPECT_EQ(seen.size(), kExamples * kExamples);
  for (const auto& [where, times] : seen) EXPECT_NEAR(times, 1000, 150) << where.first;
}

TEST(ShardSampler, TheFirstStepsAreTheSameExamplesForAnyNumberOfRanks) {
  constexpr std::size_t kBatch = 24;  // over all ranks
  const Places order = ShardSampler(100, 0, 1, 5, Tail::drop).order(2);
  const std::set<std::size_t> expected(order.begin(), order.begin() + kBatch);
  for (const int size : {1, 2, 3, 4, 6}) {
    std::set<std::size_t> used;
    for (const Places& shard : shards_of(100, size, 5, Tail::drop, 2)) {
      used.insert(shard.begin(), shard.begin() + kBatch / static_cast<std::size_t>(size));
    }
    EXPECT_EQ(used, expected) << size << " ranks";
  }
}

TEST(ShardSampler, AnotherSetOfRanksGoesOnInMidEpoch) {
  constexpr std::size_t kExamples = 103;
  std::vector<int> uses(kExamples);
  for (const Places& shard : shards_of(kExamples, 4, 9, Tail::keep, 1)) {
    for (std::size_t i = 0; i < 10; ++i) ++uses[shard[i]];  // 4 ranks, 10 examples each
  }
  for (const Places& shard : shards_of(kExamples, 3, 9, Tail::keep, 1, /*consumed=*/40)) {
    for (const std::size_t place : shard) ++uses[place];
  }
  EXPECT_THAT(uses, testing::Each(1));
  EXPECT_THAT(shards_of(kExamples, 3, 9, Tail::pad, 1, kExamples + 5), testing::Each(Places()));
}

TEST(ShardSampler, APlaceThatIsNone) {
  for (const auto& [place, size] : {std::pair(-1, 2), std::pair(2, 2), std::pair(0, 0)}) {
    const auto make = [place = place, size = size] {
      const ShardSampler sampler(10, place, size, 1, Tail::drop);
    };
    training_test::expect_refused(make, "place " + std::to_string(place));
  }
}

}  // namespace
