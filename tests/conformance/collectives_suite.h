// Every collective over one road after another, against a plain reference: the same bits on all
// ranks, and those of the canonical order (or of the ring's own). The ranks live in this thread and
// are driven in a seeded random order, or each has a thread. A program includes this and names its
// roads:
//   INSTANTIATE_TEST_SUITE_P(Inproc, CollectivesSuite, testing::Values(...), ...);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/job.h"
#include "tests/conformance/reference.h"
#include "tests/conformance/world.h"

namespace kolo::internal {

class CollectivesSuite : public testing::TestWithParam<CollectiveRoad> {
 protected:
  static constexpr std::uint64_t kSeed = 77001;

  // Whether to leave out a case, so that one in `of` is run: fewer on a slow road, or sanitized.
  static bool leave_out(World& world, unsigned of) {
    const unsigned slowdown = (GetParam().sampled ? 4 : 1) * kSanitizedSlowdown;
    return of * slowdown > 1 && world.random()() % (of * slowdown) != 0;
  }

  [[nodiscard]] static const std::vector<Algorithm>& algorithms() { return GetParam().algorithms; }
  [[nodiscard]] static std::vector<std::vector<int>> layouts(int n) {
    return GetParam().layouts(n);
  }

  struct PieceSpec {
    std::size_t count = 0;
    double prescale = 1.0;
    double postscale = 1.0;
  };

  struct Case {
    Algorithm algorithm = Algorithm::kDirect;
    DataType dtype = DataType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    bool in_place = false;
    std::vector<PieceSpec> pieces = {};

    [[nodiscard]] std::string text() const {
      std::string text(algorithm_name(algorithm));
      text.append(" ").append(data_type_name(dtype)).append(" ").append(reduce_op_name(op));
      if (in_place) text += " in place";
      for (const PieceSpec& piece : pieces) text += " " + std::to_string(piece.count);
      return text;
    }
  };

  static std::string hosts_text(const World& world, const std::vector<int>& host_index) {
    std::string text = "n=" + std::to_string(world.size()) + " hosts";
    for (int host : host_index) text += " " + std::to_string(host);
    return text;
  }

  // A tensor of `rank` with these bytes.
  static std::byte* tensor(World& world, std::size_t rank, const reference::Bytes& bytes) {
    std::byte* memory = world.job().memory(rank, bytes.size());
    if (!bytes.empty()) std::memcpy(memory, bytes.data(), bytes.size());
    return memory;
  }
  // What lies there; then it is written over, as its owner may as soon as an operation is done.
  static reference::Bytes take(const void* memory, std::size_t bytes) {
    auto* from = static_cast<std::byte*>(const_cast<void*>(memory));
    reference::Bytes taken(from, from + bytes);
    std::fill_n(from, bytes, std::byte{0xee});
    return taken;
  }

  // Runs one all-reduce and compares every rank's outputs with the reference.
  static void check_allreduce(World& world, const Case& c) {
    const auto n = static_cast<std::size_t>(world.size());
    const std::size_t pieces = c.pieces.size();
    std::vector<std::vector<reference::Bytes>> contents(pieces);  // [piece][rank]
    std::vector<std::vector<Piece>> lists(n);                     // [rank][piece]
    for (std::size_t p = 0; p < pieces; ++p) {
      const PieceSpec& piece = c.pieces[p];
      for (std::size_t r = 0; r < n; ++r) {
        contents[p].push_back(reference::random_elements(c.dtype, piece.count, world.random()));
        const reference::Bytes& bytes = contents[p].back();
        std::byte* input = tensor(world, r, bytes);
        lists[r].push_back({.input = input,
                            .output = c.in_place ? input : world.job().memory(r, bytes.size()),
                            .count = piece.count,
                            .prescale = piece.prescale,
                            .postscale = piece.postscale});
      }
    }
    std::vector<std::vector<reference::Bytes>> inputs(n), outputs(n);  // [rank][piece], when done
    const auto statuses = world.run(
        [&](std::size_t r) -> Operation& {
          return world.job().allreduce(r, c.algorithm, lists[r], {c.dtype, c.op});
        },
        [&](std::size_t r) {
          for (const Piece& piece : lists[r]) {
            const std::size_t bytes = piece.count * element_bytes(c.dtype);
            outputs[r].push_back(take(piece.output, bytes));
            inputs[r].push_back(take(piece.input, bytes));
          }
        });
    const std::string where = hosts_text(world, world.job().host_index()) + " " + c.text();
    ASSERT_TRUE(statuses.has_value()) << "no end: " << where;
    for (const Status& status : *statuses) ASSERT_EQ(status, Status::ok()) << where;
    for (std::size_t p = 0; p < pieces; ++p) {
      const reference::Allreduce what{.dtype = c.dtype,
                                      .op = c.op,
                                      .prescale = c.pieces[p].prescale,
                                      .postscale = c.pieces[p].postscale,
                                      .host_index = world.job().host_index(),
                                      .ring = c.algorithm == Algorithm::kRing && n > 1};
      const reference::Bytes expected = reference::allreduce(what, contents[p]);
      for (std::size_t r = 0; r < n; ++r) {
        ASSERT_TRUE(c.in_place || inputs[r][p] == contents[p][r]) << "input changed: " << where;
        ASSERT_TRUE(outputs[r][p] == expected)
            << where << ": piece " << p << " differs on rank " << r << " from element "
            << first_difference(outputs[r][p], expected) / element_bytes(c.dtype);
      }
    }
    world.job().release();
  }

  static std::size_t first_difference(const reference::Bytes& a, const reference::Bytes& b) {
    return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
  }
};

TEST_P(CollectivesSuite, AllreduceOfEveryTypeOperatorAndSmallSize) {
  for (int n = 1; n <= 9; ++n) {
    for (const std::vector<int>& hosts : layouts(n)) {
      World world(GetParam(), hosts, kSeed + static_cast<unsigned>(n));
      const auto size = static_cast<std::size_t>(n);
      for (int d = 0; d < kDataTypeCount; ++d) {
        for (int o = 0; o < kReduceOpCount; ++o) {
          const auto dtype = static_cast<DataType>(d);
          const auto op = static_cast<ReduceOp>(o);
          if (!can_reduce(dtype, op)) continue;
          for (Algorithm algorithm : algorithms()) {
            for (std::size_t count : {std::size_t{0}, std::size_t{1}, size - 1, size, size + 1}) {
              if (leave_out(world, 1)) continue;
              check_allreduce(world, {.algorithm = algorithm,
                                      .dtype = dtype,
                                      .op = op,
                                      .in_place = world.random()() % 2 == 0,
                                      .pieces = {{.count = count}}});
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST_P(CollectivesSuite, AllreduceOfLargeSizes) {
  constexpr std::size_t kCount = (std::size_t{1} << 20) / kSanitizedSlowdown + 3;
  const std::array<std::pair<DataType, ReduceOp>, 4> kinds = {{
      {DataType::kFloat32, ReduceOp::kSum},
      {DataType::kBfloat16, ReduceOp::kAvg},
      {DataType::kInt8, ReduceOp::kMax},
      {DataType::kFloat16, ReduceOp::kSum},
  }};
  std::size_t turn = 0;
  for (int n : {2, 3, 4}) {
    if (layouts(n).empty()) continue;
    World world(GetParam(), layouts(n).back(), kSeed + static_cast<unsigned>(n));
    for (Algorithm algorithm : algorithms()) {
      const auto [dtype, op] = kinds[turn++ % kinds.size()];
      const bool scaled = is_floating(dtype) && turn % 2 == 0;
      check_allreduce(world, {.algorithm = algorithm,
                              .dtype = dtype,
                              .op = op,
                              .in_place = turn % 3 != 0,
                              .pieces = {{.count = kCount, .prescale = scaled ? 0.3 : 1.0}}});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CollectivesSuite, FusedPiecesWithScalesOfTheirOwn) {
  for (int n : {1, 2, 3, 5, 8}) {
    if (layouts(n).empty()) continue;
    World world(GetParam(), layouts(n).back(), kSeed * 3 + static_cast<unsigned>(n));
    for (DataType dtype : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16,
                           DataType::kFloat64, DataType::kInt64, DataType::kBool}) {
      for (Algorithm algorithm : algorithms()) {
        if (leave_out(world, 1)) continue;
        Case c{.algorithm = algorithm,
               .dtype = dtype,
               .op = dtype == DataType::kBool || world.random()() % 2 == 0 ? ReduceOp::kSum
                                                                           : ReduceOp::kAvg,
               .in_place = world.random()() % 2 == 0};
        for (std::size_t p = 0; p < 12; ++p) {
          const std::size_t limit = p == 5 ? 200000 / static_cast<std::size_t>(n) : 300;
          PieceSpec piece{.count = world.random()() % limit};
          if (is_floating(dtype) && p % 3 != 0) piece.prescale = 0.1 * static_cast<double>(p);
          if (is_floating(dtype) && p % 4 == 1) piece.postscale = 1.0 / 3.0;
          c.pieces.push_back(piece);
        }
        check_allreduce(world, c);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CollectivesSuite, FusionChangesNoBits) {
  if (layouts(4).empty()) GTEST_SKIP() << "not for four ranks";
  World world(GetParam(), layouts(4).back(), kSeed);
  constexpr std::array<std::size_t, 4> kCounts = {1, 1000, 7, 4099};
  for (Algorithm algorithm : algorithms()) {
    // check_allreduce compares both with the reference of each piece by itself.
    Case fused{.algorithm = algorithm};
    for (std::size_t count : kCounts) {
      fused.pieces.push_back({.count = count, .prescale = 0.7});
      check_allreduce(world, {.algorithm = algorithm, .pieces = {fused.pieces.back()}});
    }
    check_allreduce(world, fused);
  }
}

TEST_P(CollectivesSuite, AllreduceAroundTheBordersOfTilesAndOneshots) {
  constexpr std::array<std::size_t, 4> kBytes = {40, 32 << 10, 256 << 10, 1 << 20};
  for (int n : {2, 3, 5}) {
    for (const std::vector<int>& hosts : layouts(n)) {
      World world(GetParam(), hosts, kSeed * 5 + static_cast<unsigned>(n));
      for (std::size_t border : kBytes) {
        const DataType dtype = n % 2 == 0 ? DataType::kFloat32 : DataType::kFloat16;
        for (std::size_t over : {0u, 1u, 2u}) {
          if (border > 100000 && leave_out(world, 4)) continue;
          const std::size_t count = border / element_bytes(dtype) - 1 + over;
          check_allreduce(world, {.algorithm = algorithms().back(),
                                  .dtype = dtype,
                                  .in_place = world.random()() % 2 == 0,
                                  .pieces = {{.count = count}}});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(CollectivesSuite, ACallersFlushToZeroDoesNotMatter) {
  constexpr unsigned kFlushAndDazRoundUp = 0x1f80 | 0x8000 | 0x0040 | 0x4000;
  for (const std::vector<int>& hosts : layouts(3)) {
    World world(GetParam(), hosts, kSeed * 7);
    world.set_mxcsr(kFlushAndDazRoundUp);
    for (Algorithm algorithm : algorithms()) {
      for (DataType dtype : {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16}) {
        for (std::size_t count : {100u, 20000u}) {
          if (leave_out(world, 1)) continue;
          check_allreduce(world, {.algorithm = algorithm,
                                  .dtype = dtype,
                                  .pieces = {{.count = count, .prescale = 0x1p-1}}});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(CollectivesSuite, AllgatherInAndOutOfPlace) {
  for (int n = 1; n <= 9; ++n) {
    if (layouts(n).empty()) continue;
    World world(GetParam(), layouts(n).back(), kSeed + static_cast<unsigned>(n));
    const auto ranks = static_cast<std::size_t>(n);
    for (std::size_t bytes : {0u, 1u, 17u, 4096u, 32768u, 32769u, 1000003u}) {
      if (bytes > 100000 && n > 4) continue;
      for (bool in_place : {false, true}) {
        if (n > 2 && leave_out(world, 1)) continue;
        reference::Bytes expected;
        std::vector<const std::byte*> inputs;
        std::vector<std::byte*> outputs;
        for (std::size_t r = 0; r < ranks; ++r) {
          const auto content = reference::random_elements(DataType::kUint8, bytes, world.random());
          expected.insert(expected.end(), content.begin(), content.end());
          outputs.push_back(world.job().memory(r, bytes * ranks));
          if (in_place && bytes > 0) {
            std::memcpy(outputs[r] + r * bytes, content.data(), bytes);
          }
          inputs.push_back(in_place ? outputs[r] + r * bytes : tensor(world, r, content));
        }
        std::vector<reference::Bytes> results(ranks);
        const auto statuses = world.run(
            [&](std::size_t r) -> Operation& {
              return world.job().allgather(r, inputs[r], outputs[r], bytes);
            },
            [&](std::size_t r) {
              results[r] = take(outputs[r], bytes * ranks);
              take(inputs[r], bytes);
            });
        ASSERT_TRUE(statuses.has_value()) << n << " ranks, " << bytes << " bytes";
        for (std::size_t r = 0; r < ranks; ++r) {
          ASSERT_EQ((*statuses)[r], Status::ok());
          ASSERT_TRUE(results[r] == expected) << n << " ranks, " << bytes << ", rank " << r;
        }
        world.job().release();
      }
    }
  }
}

TEST_P(CollectivesSuite, BroadcastFromEveryRoot) {
  for (int n = 1; n <= 9; ++n) {
    if (layouts(n).empty()) continue;
    World world(GetParam(), layouts(n).back(), kSeed + static_cast<unsigned>(n));
    const auto ranks = static_cast<std::size_t>(n);
    for (std::size_t bytes : {0u, 1u, 32768u, 40000u, 3000001u}) {
      for (int root = 0; root < n; ++root) {
        if (bytes > 100000 ? n > 5 || root != n / 2 : leave_out(world, 1)) continue;
        const bool in_place = world.random()() % 2 == 0;
        const auto source = static_cast<std::size_t>(root);
        const reference::Bytes expected =
            reference::random_elements(DataType::kUint8, bytes, world.random());
        const std::byte* input = tensor(world, source, expected);
        std::vector<std::byte*> outputs;
        for (std::size_t r = 0; r < ranks; ++r) {
          outputs.push_back(world.job().memory(r, bytes));
          if (in_place && r == source) outputs[r] = const_cast<std::byte*>(input);
        }
        std::vector<reference::Bytes> results(ranks);
        const auto statuses = world.run(
            [&](std::size_t r) -> Operation& {
              return world.job().broadcast(r, root, r == source ? input : nullptr, outputs[r],
                                           bytes);
            },
            [&](std::size_t r) {
              results[r] = take(outputs[r], bytes);
              if (r == source) take(input, bytes);
            });
        ASSERT_TRUE(statuses.has_value()) << n << " ranks, root " << root << ", " << bytes;
        for (std::size_t r = 0; r < ranks; ++r) {
          ASSERT_EQ((*statuses)[r], Status::ok());
          ASSERT_TRUE(results[r] == expected) << n << " ranks, root " << root << ", rank " << r;
        }
        world.job().release();
      }
    }
  }
}

TEST_P(CollectivesSuite, NobodyLeavesABarrierBeforeAllHaveEntered) {
  for (int n = 1; n <= 9; ++n) {
    if (layouts(n).empty()) continue;
    World world(GetParam(), layouts(n).back(), kSeed + static_cast<unsigned>(n));
    for (int late = 0; late < n; ++late) {
      std::vector<Operation*> operations(static_cast<std::size_t>(n));
      std::vector<bool> done(static_cast<std::size_t>(n));
      const auto turn = [&](std::size_t r) {
        if (operations[r] == nullptr) operations[r] = &world.job().barrier(r);
        const Result<Progress> progress = operations[r]->advance();
        ASSERT_TRUE(progress.is_ok()) << progress.status().to_string();
        done[r] = *progress == Progress::kDone;
        if (!GetParam().threads) world.job().idle(r);  // all in this thread: nobody may sleep
      };
      for (int i = 0; i < 50 * n; ++i) {
        const std::size_t r = world.random()() % static_cast<std::size_t>(n);
        if (r != static_cast<std::size_t>(late)) turn(r);
      }
      if (n > 1) {
        EXPECT_EQ(std::count(done.begin(), done.end(), true), 0) << "rank " << late;
      }
      ASSERT_TRUE(drive_until([&] { return std::count(done.begin(), done.end(), false) == 0; },
                              [&] { turn(world.random()() % static_cast<std::size_t>(n)); }))
          << n << " ranks";
    }
  }
}

// Operations one after the other, each begun as soon as this rank's last one is done.
class Rounds final : public Operation {
 public:
  Rounds(int rounds, std::function<Operation&(int)> start, std::function<void(int)> ended)
      : rounds_(rounds), start_(std::move(start)), ended_(std::move(ended)) {}
  Result<Progress> advance() override {
    if (round_ == rounds_) return Progress::kDone;
    if (current_ == nullptr) current_ = &start_(round_);
    const Result<Progress> progress = current_->advance();
    if (!progress || *progress != Progress::kDone) return progress;
    ended_(round_);
    current_ = nullptr;
    ++round_;
    return Progress::kMoved;
  }
  void cancel() override {}

 private:
  int rounds_;
  std::function<Operation&(int)> start_;
  std::function<void(int)> ended_;
  Operation* current_ = nullptr;
  int round_ = 0;
};

TEST_P(CollectivesSuite, OperationsFollowOneAnotherWithoutWaiting) {
  // A fast rank begins the next operation while others are still in the one before. Operations
  // differ in kind and size, so that small and large ones follow one another.
  if (layouts(4).empty()) GTEST_SKIP() << "not for four ranks";
  World world(GetParam(), layouts(4).back(), kSeed);
  constexpr int kRounds = 120;
  constexpr std::size_t kCount = 100000;
  const auto count_of = [](int round) -> std::size_t {
    return round % 10 == 0 ? kCount : static_cast<std::size_t>(round % 7) * 5;
  };
  // Of three rounds one is a sum of ones, two are broadcasts of the round's number by one rank.
  std::vector<std::unique_ptr<Rounds>> all(4);
  std::vector<float*> values;
  for (std::size_t r = 0; r < 4; ++r) {
    values.push_back(reinterpret_cast<float*>(world.job().memory(r, kCount * sizeof(float) + 64)));
  }
  const auto at = [&](std::size_t r) {  // aligned
    return reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(values[r]) + 63) / 64 * 64);
  };
  std::vector<int> wrong(4, 0);
  const auto statuses = world.run([&](std::size_t r) -> Operation& {
    all[r] = std::make_unique<Rounds>(
        kRounds,
        [&, r](int round) -> Operation& {
          const std::size_t count = count_of(round);
          std::fill_n(at(r), count, round % 3 == 0 ? 1.0F : static_cast<float>(round));
          if (round % 3 != 0) {
            const int root = round / 6 % 4;
            if (static_cast<int>(r) != root) std::fill_n(at(r), count, -1.0F);
            return world.job().broadcast(r, root, at(r), at(r), count * sizeof(float));
          }
          const Piece piece{.input = at(r), .output = at(r), .count = count};
          const auto turn = static_cast<std::size_t>(round) / 3;
          return world.job().allreduce(r, algorithms()[turn % algorithms().size()], {&piece, 1},
                                       {});
        },
        [&, r](int round) {
          const float expected = round % 3 == 0 ? 4.0F : static_cast<float>(round);
          const auto count = static_cast<std::ptrdiff_t>(count_of(round));
          if (std::count(at(r), at(r) + count, expected) != count) ++wrong[r];
        });
    return *all[r];
  });
  ASSERT_TRUE(statuses.has_value());
  EXPECT_EQ(wrong, std::vector<int>(4, 0)) << "rounds with wrong values, by rank";
  world.job().release();
}

}  // namespace kolo::internal
