// Collectives in which every rank has a size of its own, zeros included: reduce-scatter,
// all-gather, all-to-all; several tensors broadcast as one; and reductions that some ranks have
// left. Over one road after another, against the plain reference. A program includes this and names
// its roads:
//   INSTANTIATE_TEST_SUITE_P(Inproc, RaggedSuite, testing::Values(...), ...);
#pragma once

#include "ops/neutral.h"
#include "tests/conformance/collectives_suite.h"

namespace kolo::internal {

class RaggedSuite : public CollectivesSuite {
 protected:
  using Sizes = std::vector<std::size_t>;

  static std::size_t sum(const Sizes& sizes) {
    std::size_t total = 0;
    for (std::size_t size : sizes) total += size;
    return total;
  }
  static std::size_t before(const Sizes& sizes, std::size_t rank) {
    return sum({sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(rank)});
  }
  static std::string text(const Sizes& sizes) {
    std::string text;
    for (std::size_t size : sizes) text += " " + std::to_string(size);
    return text;
  }

  // Even blocks of a few sizes, then uneven ones: some empty, all but one empty, all empty.
  static std::vector<Sizes> sizes_of(std::size_t n, std::mt19937_64& random) {
    std::vector<Sizes> all;
    for (std::size_t each : {std::size_t{0}, std::size_t{1}, n - 1, n, n + 1}) {
      all.emplace_back(n, each);
    }
    Sizes some(n), one(n, 0), large(n);
    for (std::size_t& size : some) size = random() % 3 == 0 ? 0 : random() % 40;
    for (std::size_t& size : large) size = random() % 3 == 0 ? 0 : random() % 4000;
    one[random() % n] = 1 + random() % 200;
    all.insert(all.end(), {some, one, large});
    return all;
  }
  // About `total` in all: one half of it one rank's, nothing of another.
  static Sizes large_sizes(std::size_t n, std::size_t total) {
    Sizes sizes(n, total / (2 * n));
    sizes[n / 2] = 0;
    sizes[n - 1] = 0;
    sizes[n - 1] = total - sum(sizes);
    return sizes;
  }

  static std::string where(World& world, const std::string& what) {
    return hosts_text(world, world.job().host_index()) + " " + what;
  }

  struct Blocks {
    Algorithm algorithm = Algorithm::kDirect;
    DataType dtype = DataType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    double prescale = 1.0;
    Sizes counts = {};
  };

  static void check_reduce_scatter(World& world, const Blocks& c) {
    const auto n = static_cast<std::size_t>(world.size());
    const std::size_t element = element_bytes(c.dtype);
    const std::size_t total = sum(c.counts);
    const bool in_place = world.random()() % 2 == 0;
    std::vector<reference::Bytes> contents, outputs(n);
    std::vector<Piece> pieces;
    for (std::size_t r = 0; r < n; ++r) {
      contents.push_back(reference::random_elements(c.dtype, total, world.random()));
      std::byte* input = tensor(world, r, contents[r]);
      pieces.push_back({.input = input,
                        .output = in_place ? input + before(c.counts, r) * element
                                           : world.job().memory(r, c.counts[r] * element),
                        .count = total,
                        .prescale = c.prescale});
    }
    const auto statuses = world.run(
        [&](std::size_t r) -> Operation& {
          return world.job().reduce_scatter(r, c.algorithm, pieces[r], c.counts, {c.dtype, c.op});
        },
        [&](std::size_t r) {
          outputs[r] = take(pieces[r].output, c.counts[r] * element);
          take(pieces[r].input, total * element);
        });
    const std::string at = where(world, std::string(algorithm_name(c.algorithm)) + " " +
                                            std::string(data_type_name(c.dtype)) + " " +
                                            std::string(reduce_op_name(c.op)) + text(c.counts));
    ASSERT_TRUE(statuses.has_value()) << "no end: " << at;
    const reference::Bytes expected =
        reference::allreduce({.dtype = c.dtype,
                              .op = c.op,
                              .prescale = c.prescale,
                              .postscale = 1.0,
                              .host_index = world.job().host_index(),
                              .ring = c.algorithm == Algorithm::kRing && n > 1,
                              .chunks = c.counts},
                             contents);
    for (std::size_t r = 0; r < n; ++r) {
      ASSERT_EQ((*statuses)[r], Status::ok()) << at;
      const auto begin = expected.begin() + std::ptrdiff_t(before(c.counts, r) * element);
      ASSERT_TRUE(std::equal(outputs[r].begin(), outputs[r].end(), begin))
          << at << " rank " << r << (in_place ? " in place" : "");
    }
    world.job().release();
  }

  static void check_allgather(World& world, Algorithm algorithm, const Sizes& bytes,
                              bool in_place) {
    const auto n = static_cast<std::size_t>(world.size());
    const std::size_t total = sum(bytes);
    reference::Bytes expected;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    for (std::size_t r = 0; r < n; ++r) {
      const auto content = reference::random_elements(DataType::kUint8, bytes[r], world.random());
      expected.insert(expected.end(), content.begin(), content.end());
      outputs.push_back(world.job().memory(r, total));
      std::byte* own = outputs[r] + before(bytes, r);
      if (in_place && !content.empty()) std::memcpy(own, content.data(), content.size());
      inputs.push_back(in_place ? own : tensor(world, r, content));
    }
    std::vector<reference::Bytes> results(n);
    const auto statuses = world.run(
        [&](std::size_t r) -> Operation& {
          return world.job().allgather(r, algorithm, inputs[r], outputs[r], bytes);
        },
        [&](std::size_t r) {
          results[r] = take(outputs[r], total);
          take(inputs[r], bytes[r]);
        });
    const std::string at = where(world, std::string(algorithm_name(algorithm)) + text(bytes));
    ASSERT_TRUE(statuses.has_value()) << "no end: " << at;
    for (std::size_t r = 0; r < n; ++r) {
      ASSERT_EQ((*statuses)[r], Status::ok()) << at;
      ASSERT_TRUE(results[r] == expected) << at << " rank " << r << (in_place ? " in place" : "");
    }
    world.job().release();
  }

  // bytes[from][to]
  static void check_alltoall(World& world, const std::vector<Sizes>& bytes) {
    const auto n = static_cast<std::size_t>(world.size());
    std::vector<reference::Bytes> contents, expected(n), results(n);
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    std::vector<Sizes> receive(n, Sizes(n));
    for (std::size_t r = 0; r < n; ++r) {
      contents.push_back(
          reference::random_elements(DataType::kUint8, sum(bytes[r]), world.random()));
      inputs.push_back(tensor(world, r, contents[r]));
      for (std::size_t to = 0; to < n; ++to) {
        receive[to][r] = bytes[r][to];
        const auto block = contents[r].begin() + std::ptrdiff_t(before(bytes[r], to));
        expected[to].insert(expected[to].end(), block, block + std::ptrdiff_t(bytes[r][to]));
      }
    }
    for (std::size_t r = 0; r < n; ++r) outputs.push_back(world.job().memory(r, sum(receive[r])));
    const auto statuses = world.run(
        [&](std::size_t r) -> Operation& {
          return world.job().alltoall(r, inputs[r], outputs[r], bytes[r], receive[r]);
        },
        [&](std::size_t r) {
          results[r] = take(outputs[r], sum(receive[r]));
          take(inputs[r], sum(bytes[r]));
        });
    std::string at = where(world, "alltoall");
    for (const Sizes& row : bytes) at += text(row) + ";";
    ASSERT_TRUE(statuses.has_value()) << "no end: " << at;
    for (std::size_t r = 0; r < n; ++r) {
      ASSERT_EQ((*statuses)[r], Status::ok()) << at;
      ASSERT_TRUE(results[r] == expected[r]) << at << " rank " << r;
    }
    world.job().release();
  }
};

TEST_P(RaggedSuite, ReduceScatterGivesTheBitsOfAnAllreduceForEveryTypeAndOperator) {
  for (int n = 1; n <= 9; ++n) {
    for (const std::vector<int>& hosts : layouts(n)) {
      World world(GetParam(), hosts, kSeed + static_cast<unsigned>(n));
      for (int d = 0; d < kDataTypeCount; ++d) {
        for (int o = 0; o < kReduceOpCount; ++o) {
          const auto dtype = static_cast<DataType>(d);
          const auto op = static_cast<ReduceOp>(o);
          if (!can_reduce(dtype, op)) continue;
          for (const Sizes& counts : sizes_of(static_cast<std::size_t>(n), world.random())) {
            if (leave_out(world, 6)) continue;
            const std::size_t pick = world.random()() % algorithms().size();
            check_reduce_scatter(world, {.algorithm = algorithms()[pick],
                                         .dtype = dtype,
                                         .op = op,
                                         .prescale = is_floating(dtype) && pick != 1 ? 0.3 : 1.0,
                                         .counts = counts});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(RaggedSuite, ReduceScatterOfLargeSizes) {
  constexpr std::size_t kCount = (std::size_t{1} << 20) / kSanitizedSlowdown + 3;
  std::size_t turn = 0;
  for (int n : {2, 5}) {
    if (layouts(n).empty()) continue;
    World world(GetParam(), layouts(n).back(), kSeed + static_cast<unsigned>(n));
    const auto ranks = static_cast<std::size_t>(n);
    for (Algorithm algorithm : algorithms()) {
      if (algorithm == Algorithm::kOneshot) continue;  // the same as direct
      const bool even = (n == 2) != (algorithm == Algorithm::kRing);
      ++turn;
      check_reduce_scatter(
          world, {.algorithm = algorithm,
                  .dtype = turn % 3 == 0 ? DataType::kBfloat16 : DataType::kFloat32,
                  .op = turn % 4 == 0 ? ReduceOp::kAvg : ReduceOp::kSum,
                  .counts = even ? Sizes(ranks, kCount / ranks) : large_sizes(ranks, kCount)});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(RaggedSuite, AllgatherOfUnevenContributions) {
  for (int n = 1; n <= 9; ++n) {
    if (layouts(n).empty()) continue;
    World world(GetParam(), layouts(n).back(), kSeed + static_cast<unsigned>(n));
    const auto ranks = static_cast<std::size_t>(n);
    for (Algorithm algorithm : algorithms()) {
      if (algorithm == Algorithm::kOneshot) continue;  // the same as direct
      for (const Sizes& bytes : sizes_of(ranks, world.random())) {
        if (leave_out(world, 1)) continue;
        check_allgather(world, algorithm, bytes, world.random()() % 2 == 0);
        if (HasFatalFailure()) return;
      }
      if (n != 2 && n != 5) continue;
      for (bool in_place : {false, true}) {
        check_allgather(world, algorithm, large_sizes(ranks, (std::size_t{3} << 20) + 3), in_place);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(RaggedSuite, AlltoallOfEvenAndUnevenBlocks) {
  for (int n = 1; n <= 9; ++n) {
    for (const std::vector<int>& hosts : layouts(n)) {
      World world(GetParam(), hosts, kSeed + static_cast<unsigned>(n));
      const auto ranks = static_cast<std::size_t>(n);
      for (std::size_t each :
           {std::size_t{0}, std::size_t{1}, ranks - 1, ranks, ranks + 1, std::size_t{40000}}) {
        check_alltoall(world, std::vector<Sizes>(ranks, Sizes(ranks, each)));
        if (HasFatalFailure()) return;
      }
      for (std::size_t limit : {std::size_t{50}, std::size_t{5000}, std::size_t{400000} / ranks}) {
        std::vector<Sizes> bytes(ranks, Sizes(ranks));
        for (Sizes& row : bytes) {
          for (std::size_t& size : row) {
            size = world.random()() % 3 == 0 ? 0 : world.random()() % limit;
          }
        }
        check_alltoall(world, bytes);
        if (HasFatalFailure()) return;
      }
    }
  }
  if (layouts(3).empty()) return;
  World world(GetParam(), layouts(3).back(), kSeed);
  const std::size_t large = (std::size_t{1} << 20) + 3;
  check_alltoall(world, {{large, 0, large}, {0, 7, 3 * large}, {1, large, 0}});
}

TEST_P(RaggedSuite, BroadcastOfSeveralTensorsAsOne) {
  for (int n : {1, 2, 3, 4, 8}) {
    if (layouts(n).empty()) continue;
    World world(GetParam(), layouts(n).back(), kSeed + static_cast<unsigned>(n));
    const auto ranks = static_cast<std::size_t>(n);
    for (std::size_t limit : {std::size_t{1}, std::size_t{3000}, std::size_t{1500000}}) {
      const std::size_t root = world.random()() % ranks;
      const bool in_place = world.random()() % 2 == 0;
      std::vector<reference::Bytes> contents;
      std::vector<std::vector<BroadcastPiece>> lists(ranks);
      for (std::size_t p = 0; p < 5; ++p) {
        const std::size_t bytes = world.random()() % limit;
        contents.push_back(reference::random_elements(DataType::kUint8, bytes, world.random()));
        for (std::size_t r = 0; r < ranks; ++r) {
          std::byte* input = r == root ? tensor(world, r, contents[p]) : nullptr;
          const bool here = r == root && (in_place || p == 3);
          lists[r].push_back({input, here ? input : world.job().memory(r, bytes), bytes});
        }
      }
      std::vector<std::vector<reference::Bytes>> results(ranks);
      const auto statuses = world.run(
          [&](std::size_t r) -> Operation& {
            return world.job().broadcast(r, static_cast<int>(root), lists[r]);
          },
          [&](std::size_t r) {
            for (const BroadcastPiece& piece : lists[r]) {
              results[r].push_back(take(piece.output, piece.bytes));
            }
          });
      ASSERT_TRUE(statuses.has_value()) << n << " ranks, below " << limit;
      for (std::size_t r = 0; r < ranks; ++r) {
        ASSERT_EQ((*statuses)[r], Status::ok());
        ASSERT_TRUE(results[r] == contents) << n << " ranks, root " << root << ", rank " << r;
      }
      world.job().release();
    }
  }
}

// Ranks that have joined bring neutral elements, and do not count in an average.
TEST_P(RaggedSuite, ReductionsThatSomeRanksHaveLeft) {
  for (int n = 2; n <= 9; ++n) {
    for (const std::vector<int>& hosts : layouts(n)) {
      World world(GetParam(), hosts, kSeed + static_cast<unsigned>(n));
      const auto ranks = static_cast<std::size_t>(n);
      for (DataType dtype : {DataType::kFloat32, DataType::kBfloat16, DataType::kInt16}) {
        for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin}) {
          for (Algorithm algorithm : algorithms()) {
            if (leave_out(world, 2)) continue;
            const std::size_t count = world.random()() % 3000;
            std::vector<bool> joined(ranks);
            for (std::size_t r = 0; r < ranks; ++r) joined[r] = world.random()() % 2 == 0;
            joined[world.random()() % ranks] = false;
            const auto here = static_cast<int>(std::count(joined.begin(), joined.end(), false));
            std::vector<reference::Bytes> contents, outputs(ranks);
            std::vector<Piece> pieces;
            for (std::size_t r = 0; r < ranks; ++r) {
              contents.push_back(reference::random_elements(dtype, count, world.random()));
              std::byte* input = tensor(world, r, contents[r]);
              if (joined[r]) fill_neutral(dtype, op, 1.0, input, count);
              pieces.push_back({.input = input, .output = input, .count = count});
            }
            const auto statuses = world.run(
                [&](std::size_t r) -> Operation& {
                  return world.job().allreduce(r, algorithm, {&pieces[r], 1}, {dtype, op, here});
                },
                [&](std::size_t r) {
                  outputs[r] = take(pieces[r].output, count * element_bytes(dtype));
                });
            ASSERT_TRUE(statuses.has_value());
            const reference::Bytes expected =
                reference::allreduce({.dtype = dtype,
                                      .op = op,
                                      .prescale = 1.0,
                                      .postscale = 1.0,
                                      .host_index = hosts,
                                      .ring = algorithm == Algorithm::kRing,
                                      .joined = joined},
                                     contents);
            for (std::size_t r = 0; r < ranks; ++r) {
              ASSERT_EQ((*statuses)[r], Status::ok());
              ASSERT_TRUE(outputs[r] == expected)
                  << where(world, std::string(algorithm_name(algorithm))) << " "
                  << data_type_name(dtype) << " " << reduce_op_name(op) << " of " << here;
            }
            world.job().release();
          }
        }
      }
    }
  }
}

// The ranks of one job run ahead of one another through collectives of all kinds.
TEST_P(RaggedSuite, CollectivesOfAllKindsFollowOneAnotherWithoutWaiting) {
  if (layouts(4).empty()) GTEST_SKIP() << "not for four ranks";
  World world(GetParam(), layouts(4).back(), kSeed);
  constexpr int kRounds = 150;
  const Sizes counts = {5, 0, 40000, 17};  // by rank
  constexpr std::size_t kAll = 40022;
  std::vector<std::int32_t*> in, out;
  for (std::size_t r = 0; r < 4; ++r) {
    for (auto* list : {&in, &out}) {
      void* memory = world.job().memory(r, 4 * kAll * sizeof(std::int32_t) + 64);
      list->push_back(reinterpret_cast<std::int32_t*>(
          (reinterpret_cast<std::uintptr_t>(memory) + 63) / 64 * 64));
    }
  }
  const auto value = [](std::size_t rank, int round) {
    return static_cast<std::int32_t>(1000 * round + static_cast<int>(rank));
  };
  std::vector<std::unique_ptr<Rounds>> all(4);
  std::vector<int> wrong(4, 0);
  const std::array<Sizes, 4> to_one = {Sizes{4, 4, 4, 4}, {4, 4, 4, 4}, {4, 4, 4, 4}, {4, 4, 4, 4}};
  Sizes bytes;
  for (std::size_t count : counts) bytes.push_back(count * 4);
  const auto statuses = world.run([&](std::size_t r) -> Operation& {
    all[r] = std::make_unique<Rounds>(
        kRounds,
        [&, r](int round) -> Operation& {
          const Algorithm algorithm =
              algorithms()[static_cast<std::size_t>(round) / 3 % algorithms().size()];
          std::fill_n(in[r], kAll, value(r, round));
          switch (round % 3) {
            case 0:
              return world.job().reduce_scatter(r, algorithm, {in[r], out[r], kAll}, counts,
                                                {DataType::kInt32, ReduceOp::kMax});
            case 1: return world.job().allgather(r, algorithm, in[r], out[r], bytes);
            default: return world.job().alltoall(r, in[r], out[r], to_one[r], to_one[r]);
          }
        },
        [&, r](int round) {
          bool right = true;
          if (round % 3 == 0) {
            right = std::count(out[r], out[r] + counts[r], value(3, round)) ==
                    static_cast<std::ptrdiff_t>(counts[r]);
          }
          for (std::size_t from = 0; from < 4; ++from) {
            const std::int32_t* block = out[r] + before(counts, from);
            if (round % 3 == 1) {
              right = right && std::count(block, block + counts[from], value(from, round)) ==
                                   static_cast<std::ptrdiff_t>(counts[from]);
            } else if (round % 3 == 2) {
              right = right && out[r][from] == value(from, round);
            }
          }
          wrong[r] += right ? 0 : 1;
        });
    return *all[r];
  });
  ASSERT_TRUE(statuses.has_value());
  EXPECT_EQ(wrong, std::vector<int>(4, 0)) << "rounds with wrong values, by rank";
  world.job().release();
}

}  // namespace kolo::internal
