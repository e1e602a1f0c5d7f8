// The canonical order, slices, the ring's schedule and the choice of an algorithm: pure functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "ops/communicator.h"
#include "ops/host_map.h"
#include "ops/reduction_order.h"
#include "ops/select.h"
#include "ops/slices.h"

namespace kolo::internal {
namespace {

using Step = ReductionOrder::Step;

// Runs a program over names of ranks; the result is the expression that it stands for.
std::string expression(std::span<const Step> steps) {
  std::vector<std::string> stack;
  const auto x = [](int rank) { return std::to_string(rank); };
  for (const Step& step : steps) {
    switch (step.kind) {
      case Step::Kind::kLeaf: stack.push_back(x(step.a)); break;
      case Step::Kind::kPair: stack.push_back("(" + x(step.a) + " " + x(step.b) + ")"); break;
      case Step::Kind::kQuad:
        stack.push_back("((" + x(step.a) + " " + x(step.b) + ") (" + x(step.c) + " " + x(step.d) +
                        "))");
        break;
      case Step::Kind::kCombine: {
        const std::string right = stack.back();
        stack.pop_back();
        stack.back() = "(" + stack.back() + " " + right + ")";
        break;
      }
      case Step::Kind::kCombineLeaf:
        stack.back() = "(" + stack.back() + " " + x(step.a) + ")";
        break;
    }
  }
  EXPECT_EQ(stack.size(), 1u);
  return stack.back();
}

std::string tree_of(const std::vector<int>& hosts) {
  return expression(ReductionOrder(hosts).plain_steps());
}

TEST(ReductionOrder, OneHostIsTheBalancedTreeWithTheLargerPowerOfTwoOnTheLeft) {
  EXPECT_EQ(tree_of({0}), "0");
  EXPECT_EQ(tree_of({0, 0}), "(0 1)");
  EXPECT_EQ(tree_of({0, 0, 0}), "((0 1) 2)");
  EXPECT_EQ(tree_of({0, 0, 0, 0}), "((0 1) (2 3))");
  EXPECT_EQ(tree_of({0, 0, 0, 0, 0}), "(((0 1) (2 3)) 4)");
  EXPECT_EQ(tree_of({0, 0, 0, 0, 0, 0, 0}), "(((0 1) (2 3)) ((4 5) 6))");
  EXPECT_EQ(tree_of(std::vector<int>(9, 0)), "((((0 1) (2 3)) ((4 5) (6 7))) 8)");
}

TEST(ReductionOrder, HostsAreSummedFirstThenCombined) {
  EXPECT_EQ(tree_of({0, 1, 1, 1}), "(0 ((1 2) 3))");
  EXPECT_EQ(tree_of({0, 0, 0, 1, 1, 2}), "((((0 1) 2) (3 4)) 5)");
  // Ranks dealt out in turn, and hosts numbered in any way: first ranks give the hosts' order.
  EXPECT_EQ(tree_of({7, 3, 7, 3}), "((0 2) (1 3))");
}

TEST(ReductionOrder, DoesNotDependOnTheLayoutWhenEveryHostHasTheSamePowerOfTwo) {
  const std::string one_host = tree_of(std::vector<int>(8, 0));
  EXPECT_EQ(tree_of({0, 0, 1, 1, 2, 2, 3, 3}), one_host);
  EXPECT_EQ(tree_of({0, 0, 0, 0, 1, 1, 1, 1}), one_host);
  EXPECT_EQ(tree_of({0, 1, 2, 3, 4, 5, 6, 7}), one_host);
}

TEST(ReductionOrder, FusedStepsMeanTheSame) {
  for (int n = 1; n <= 70; ++n) {
    for (int per_host : {1, 2, 3, 5, 100}) {
      std::vector<int> hosts;
      for (int r = 0; r < n; ++r) hosts.push_back(r / per_host);
      const ReductionOrder order(hosts);
      EXPECT_EQ(expression(order.steps()), expression(order.plain_steps())) << n << " " << per_host;
      EXPECT_LE(order.steps().size(), order.plain_steps().size());
      EXPECT_EQ(order.size(), n);
    }
  }
  EXPECT_EQ(ReductionOrder::single_host(2).steps().size(), 1u);
  EXPECT_EQ(ReductionOrder::single_host(3).steps().size(), 2u);
  EXPECT_EQ(ReductionOrder::single_host(4).steps().size(), 1u);
}

TEST(Slices, CoverEverythingInOrderAndDifferByOneAtMost) {
  for (std::size_t parts = 1; parts <= 9; ++parts) {
    for (std::size_t elements = 0; elements <= 40; ++elements) {
      std::size_t at = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        const Range slice = balanced_slice(elements, parts, i);
        EXPECT_EQ(slice.begin, at);
        EXPECT_TRUE(slice.count == elements / parts || slice.count == elements / parts + 1);
        EXPECT_LE(slice.count, balanced_slice(elements, parts, 0).count);
        at = slice.end();
      }
      EXPECT_EQ(at, elements);
    }
  }
}

TEST(Slices, OfLinesCoverATileAndShareNoLine) {
  for (std::size_t count : {0u, 1u, 15u, 16u, 17u, 100u, 65536u}) {
    for (std::size_t parts = 1; parts <= 9; ++parts) {
      const Range tile{.begin = 1000, .count = count};
      std::size_t next = tile.begin;
      for (std::size_t i = 0; i < parts; ++i) {
        const Range part = line_slice(tile, 16, parts, i);
        ASSERT_EQ(part.begin, next) << count << " in " << parts;
        ASSERT_TRUE(part.count == 0 || (part.begin - tile.begin) % 16 == 0);
        next = part.end();
      }
      ASSERT_EQ(next, tile.end()) << count << " in " << parts;
    }
  }
}

TEST(HostMap, NumbersHostsByTheirFirstRanksAndRanksByTheirOrder) {
  const HostMap map(std::vector{7, 3, 7, 7, 3, 9});
  EXPECT_EQ(map.size(), 6);
  EXPECT_EQ(map.hosts(), 3);
  EXPECT_EQ(map.max_local_size(), 3);
  const std::vector<int> hosts = {0, 1, 0, 0, 1, 2}, locals = {0, 0, 1, 2, 1, 0};
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(map.host(rank), hosts[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(map.local(rank), locals[static_cast<std::size_t>(rank)]);
  }
  EXPECT_EQ(map.owner(0, 1), 2);
  EXPECT_EQ(map.owner(1, 2), 1);
  EXPECT_EQ(map.owner(2, 5), 5);
}

TEST(Slices, DoNotOverflowFarAbove32Bits) {
  constexpr std::size_t kElements = (std::size_t{1} << 62) + 5;
  const Range last = balanced_slice(kElements, 3, 2);
  EXPECT_EQ(last.end(), kElements);
  EXPECT_EQ(segment_count(kElements, 65536), (std::size_t{1} << 46) + 1);
  EXPECT_EQ(segment_of({0, kElements}, 65536, std::size_t{1} << 46).count, 5u);
}

TEST(Slices, SegmentsCoverTheirSlice) {
  for (std::size_t count : {0u, 1u, 7u, 8u, 9u, 64u, 65u}) {
    std::size_t at = 100;
    for (std::size_t i = 0; i < segment_count(count, 8); ++i) {
      const Range segment = segment_of({100, count}, 8, i);
      EXPECT_EQ(segment.begin, at);
      EXPECT_GT(segment.count, 0u);
      EXPECT_LE(segment.count, 8u);
      at = segment.end();
    }
    EXPECT_EQ(at, 100 + count);
    EXPECT_EQ(segment_of({100, count}, 8, segment_count(count, 8)).count, 0u);
  }
}

TEST(Ring, EveryTurnMatchesAndEverySumIsComplete) {
  for (int n = 2; n <= 9; ++n) {
    // held[r][c]: whose contributions rank r's copy of chunk c has.
    std::vector<std::vector<std::multiset<int>>> held(static_cast<std::size_t>(n));
    for (int r = 0; r < n; ++r) {
      held[static_cast<std::size_t>(r)].assign(static_cast<std::size_t>(n), {r});
    }
    for (int turn = 0; turn < ring_turns(n); ++turn) {
      auto next = held;
      for (int r = 0; r < n; ++r) {
        const int left = (r + n - 1) % n;
        const int chunk = ring_receive_chunk(n, r, turn);
        EXPECT_EQ(chunk, ring_send_chunk(n, left, turn));
        if (turn == ring_reducing_turns(n) - 1) {
          EXPECT_EQ(chunk, r) << "a rank's own sum ends with it";
        }
        const auto c = static_cast<std::size_t>(chunk);
        auto& mine = next[static_cast<std::size_t>(r)][c];
        const auto& came = held[static_cast<std::size_t>(left)][c];
        if (!ring_turn_reduces(n, turn)) mine.clear();
        mine.insert(came.begin(), came.end());
      }
      held = next;
    }
    std::multiset<int> all;
    for (int r = 0; r < n; ++r) all.insert(r);
    for (const auto& row : held) {
      for (const auto& contributions : row) EXPECT_EQ(contributions, all) << n << " ranks";
    }
  }
}

TEST(Select, TakesTheRingOnlyWhenAskedFor) {
  for (std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{1} << 16, SIZE_MAX}) {
    for (int n : {1, 2, 9, 1000}) {
      EXPECT_NE(select_allreduce(AlgorithmChoice::kAuto, bytes, n), Algorithm::kRing);
      EXPECT_EQ(select_allreduce(AlgorithmChoice::kRing, bytes, n), Algorithm::kRing);
      EXPECT_EQ(select_allreduce(AlgorithmChoice::kOneshot, bytes, n), Algorithm::kOneshot);
      EXPECT_EQ(select_allreduce(AlgorithmChoice::kDirect, bytes, n), Algorithm::kDirect);
    }
  }
  EXPECT_EQ(select_allreduce(AlgorithmChoice::kAuto, 8, 4), Algorithm::kOneshot);
  EXPECT_EQ(select_allreduce(AlgorithmChoice::kAuto, std::size_t{1} << 20, 4), Algorithm::kDirect);
}

TEST(Select, ReadsItsOption) {
  EXPECT_EQ(parse_algorithm("auto"), AlgorithmChoice::kAuto);
  EXPECT_EQ(parse_algorithm("ring"), AlgorithmChoice::kRing);
  EXPECT_EQ(parse_algorithm("direct"), AlgorithmChoice::kDirect);
  EXPECT_EQ(parse_algorithm("oneshot"), AlgorithmChoice::kOneshot);
  EXPECT_EQ(parse_algorithm(""), std::nullopt);
  EXPECT_EQ(parse_algorithm("Ring"), std::nullopt);
}

TEST(MessageTag, KeepsItsPartsApart) {
  std::set<std::uint64_t> tags;
  for (std::uint32_t sequence : {0u, 1u, 0xffffffffu}) {
    for (std::uint32_t phase : {0u, 1u, 15u}) {
      for (std::uint64_t segment : {0u, 1u, 0xfffffffu}) {
        EXPECT_TRUE(tags.insert(message_tag(sequence, phase, segment)).second);
      }
    }
  }
}

}  // namespace
}  // namespace kolo::internal
