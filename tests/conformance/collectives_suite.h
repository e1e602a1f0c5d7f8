// Every collective over one road after another, against a plain reference: the same bits on all
// ranks, and those of the canonical order (or of the ring's own). All ranks live in this thread
// and are driven in a seeded random order. A program includes this and names its roads:
//   INSTANTIATE_TEST_SUITE_P(Inproc, CollectivesSuite, testing::Values(...), ...);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/operation_set.h"
#include "tests/conformance/mesh.h"
#include "tests/conformance/reference.h"

namespace kolo::internal {

// The ranks of one job and what they need to run collectives.
class World {
 public:
  World(const Road& road, std::vector<int> host_index, std::uint64_t seed)
      : host_index_(std::move(host_index)),
        order_(host_index_),
        sets_(host_index_.size()),
        mesh_(road.make(size(), seed)),
        random_(seed) {
    for (auto& row : mesh_.rows) {
      std::vector<Channel*>& channels = channels_.emplace_back();
      for (auto& channel : row) channels.push_back(channel.get());
    }
  }

  [[nodiscard]] int size() const { return static_cast<int>(host_index_.size()); }
  [[nodiscard]] const std::vector<int>& host_index() const { return host_index_; }
  std::mt19937_64& random() { return random_; }
  Mesh& mesh() { return mesh_; }

  // Starts `start(set, communicator)` on every rank, each at a time of its own, and drives them
  // to their ends. The statuses in rank order; nothing if that took too long.
  using Start = std::function<Operation&(OperationSet&, const Communicator&)>;
  std::optional<std::vector<Status>> run(const Start& start) {
    const auto n = static_cast<std::size_t>(size());
    ++sequence_;
    std::vector<Operation*> operations(n);
    std::vector<std::optional<Status>> ends(n);
    const bool over = drive_until(
        [&] {
          return std::all_of(ends.begin(), ends.end(), [](auto& e) { return e.has_value(); });
        },
        [&] {
          const std::size_t r = random_() % n;
          if (ends[r]) return;
          if (operations[r] == nullptr) operations[r] = &start(sets_[r], communicator(r));
          const Result<Progress> progress = operations[r]->advance();
          if (!progress) {
            ends[r] = progress.status();
          } else if (*progress == Progress::kDone) {
            ends[r] = Status::ok();
          } else if (*progress == Progress::kBlocked) {
            mesh_.idle();
          }
        });
    if (!over) return std::nullopt;
    std::vector<Status> statuses;
    for (auto& end : ends) statuses.push_back(*end);
    return statuses;
  }

  [[nodiscard]] Communicator communicator(std::size_t r) const {
    return {.rank = static_cast<int>(r),
            .size = size(),
            .channels = channels_[r],
            .order = &order_,
            .sequence = sequence_};
  }

 private:
  std::vector<int> host_index_;
  ReductionOrder order_;
  std::vector<OperationSet> sets_;
  Mesh mesh_;
  std::vector<std::vector<Channel*>> channels_;
  std::mt19937_64 random_;
  std::uint32_t sequence_ = 0xfffffff0u;  // runs over on the way
};

class CollectivesSuite : public testing::TestWithParam<Road> {
 protected:
  static constexpr std::uint64_t kSeed = 77001;
  static constexpr std::array kAlgorithms = {Algorithm::kOneshot, Algorithm::kDirect,
                                             Algorithm::kRing};

  // Host layouts of n ranks: one host; blocks of two; one rank apart and the rest.
  static std::vector<std::vector<int>> layouts(int n) {
    std::vector<int> one(static_cast<std::size_t>(n), 0), pairs = one, apart = one;
    for (int r = 0; r < n; ++r) {
      pairs[static_cast<std::size_t>(r)] = r / 2;
      apart[static_cast<std::size_t>(r)] = r == 0 ? 0 : 1;
    }
    if (n == 1) return {one};
    return n == 2 ? std::vector{one, apart} : std::vector{one, pairs, apart};
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

  // Runs one all-reduce and compares every rank's outputs with the reference.
  static void check_allreduce(World& world, const Case& c) {
    const auto n = static_cast<std::size_t>(world.size());
    const std::size_t pieces = c.pieces.size();
    std::vector<std::vector<reference::Bytes>> inputs(pieces);   // [piece][rank]
    std::vector<std::vector<reference::Bytes>> outputs(pieces);  // [piece][rank]
    for (std::size_t p = 0; p < pieces; ++p) {
      for (std::size_t r = 0; r < n; ++r) {
        inputs[p].push_back(reference::random_elements(c.dtype, c.pieces[p].count, world.random()));
      }
      outputs[p] = c.in_place ? inputs[p] : std::vector<reference::Bytes>(n);
      for (auto& output : outputs[p]) output.resize(inputs[p][0].size());
    }
    const auto before = inputs;
    const World::Start start = [&](OperationSet& set,
                                   const Communicator& communicator) -> Operation& {
      const auto r = static_cast<std::size_t>(communicator.rank);
      std::vector<Piece> list;
      for (std::size_t p = 0; p < pieces; ++p) {
        list.push_back({.input = c.in_place ? outputs[p][r].data() : inputs[p][r].data(),
                        .output = outputs[p][r].data(),
                        .count = c.pieces[p].count,
                        .prescale = c.pieces[p].prescale,
                        .postscale = c.pieces[p].postscale});
      }
      return set.start_allreduce(c.algorithm, communicator, list, c.dtype, c.op);
    };
    const auto statuses = world.run(start);
    const std::string where = "n=" + std::to_string(n) + " " + c.text();
    ASSERT_TRUE(statuses.has_value()) << "no end: " << where;
    for (const Status& status : *statuses) ASSERT_EQ(status, Status::ok()) << where;
    EXPECT_EQ(inputs, before) << "inputs were changed: " << where;
    for (std::size_t p = 0; p < pieces; ++p) {
      const reference::Allreduce what{.dtype = c.dtype,
                                      .op = c.op,
                                      .prescale = c.pieces[p].prescale,
                                      .postscale = c.pieces[p].postscale,
                                      .host_index = world.host_index(),
                                      .ring = c.algorithm == Algorithm::kRing && n > 1};
      const reference::Bytes expected = reference::allreduce(what, inputs[p]);
      for (std::size_t r = 0; r < n; ++r) {
        ASSERT_TRUE(outputs[p][r] == expected)
            << where << ": piece " << p << " differs on rank " << r << " from element "
            << first_difference(outputs[p][r], expected) / element_bytes(c.dtype);
      }
    }
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
          for (Algorithm algorithm : kAlgorithms) {
            for (std::size_t count : {std::size_t{0}, std::size_t{1}, size - 1, size, size + 1}) {
              if (GetParam().sampled && world.random()() % 5 != 0) continue;
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
  constexpr std::size_t kCount = (std::size_t{1} << 20) + 3;
  const std::array<std::pair<DataType, ReduceOp>, 4> kinds = {{
      {DataType::kFloat32, ReduceOp::kSum},
      {DataType::kBfloat16, ReduceOp::kAvg},
      {DataType::kInt8, ReduceOp::kMax},
      {DataType::kFloat16, ReduceOp::kSum},
  }};
  std::size_t turn = 0;
  for (int n : {2, 3, 4}) {
    World world(GetParam(), layouts(n).back(), kSeed + static_cast<unsigned>(n));
    for (Algorithm algorithm : kAlgorithms) {
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
    World world(GetParam(), layouts(n).back(), kSeed * 3 + static_cast<unsigned>(n));
    for (DataType dtype : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16,
                           DataType::kFloat64, DataType::kInt64, DataType::kBool}) {
      for (Algorithm algorithm : kAlgorithms) {
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
  World world(GetParam(), layouts(4)[1], kSeed);
  constexpr std::array<std::size_t, 4> kCounts = {1, 1000, 7, 4099};
  for (Algorithm algorithm : kAlgorithms) {
    // check_allreduce compares both with the reference of each piece by itself.
    Case fused{.algorithm = algorithm};
    for (std::size_t count : kCounts) {
      fused.pieces.push_back({.count = count, .prescale = 0.7});
      check_allreduce(world, {.algorithm = algorithm, .pieces = {fused.pieces.back()}});
    }
    check_allreduce(world, fused);
  }
}

TEST_P(CollectivesSuite, AllgatherInAndOutOfPlace) {
  for (int n = 1; n <= 9; ++n) {
    World world(GetParam(), layouts(n)[0], kSeed + static_cast<unsigned>(n));
    const auto ranks = static_cast<std::size_t>(n);
    for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{4096},
                              std::size_t{1000003}}) {
      if (bytes > 100000 && n > 4) continue;
      for (bool in_place : {false, true}) {
        reference::Bytes expected;
        std::vector<reference::Bytes> inputs, outputs;
        for (std::size_t r = 0; r < ranks; ++r) {
          inputs.push_back(reference::random_elements(DataType::kUint8, bytes, world.random()));
          expected.insert(expected.end(), inputs[r].begin(), inputs[r].end());
          outputs.emplace_back(bytes * ranks);
          if (in_place) {
            std::copy(inputs[r].begin(), inputs[r].end(),
                      outputs[r].begin() + static_cast<std::ptrdiff_t>(r * bytes));
          }
        }
        const auto statuses =
            world.run([&](OperationSet& set, const Communicator& communicator) -> Operation& {
              const auto r = static_cast<std::size_t>(communicator.rank);
              const std::byte* input = in_place ? outputs[r].data() + r * bytes : inputs[r].data();
              return set.start_allgather(communicator, input, outputs[r].data(), bytes);
            });
        ASSERT_TRUE(statuses.has_value()) << n << " ranks, " << bytes << " bytes";
        for (std::size_t r = 0; r < ranks; ++r) {
          ASSERT_EQ((*statuses)[r], Status::ok());
          ASSERT_TRUE(outputs[r] == expected) << n << " ranks, " << bytes << " bytes, rank " << r;
        }
      }
    }
  }
}

TEST_P(CollectivesSuite, BroadcastFromEveryRoot) {
  for (int n = 1; n <= 9; ++n) {
    World world(GetParam(), layouts(n)[0], kSeed + static_cast<unsigned>(n));
    const auto ranks = static_cast<std::size_t>(n);
    for (std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{40000}, std::size_t{3000001}}) {
      for (int root = 0; root < n; ++root) {
        if (bytes > 100000 && (n > 5 || root != n / 2)) continue;
        const bool in_place = world.random()() % 2 == 0;
        const reference::Bytes expected =
            reference::random_elements(DataType::kUint8, bytes, world.random());
        reference::Bytes input = expected;
        std::vector<reference::Bytes> outputs(ranks, reference::Bytes(bytes));
        if (in_place) outputs[static_cast<std::size_t>(root)] = expected;
        const auto statuses =
            world.run([&](OperationSet& set, const Communicator& communicator) -> Operation& {
              std::byte* output = outputs[static_cast<std::size_t>(communicator.rank)].data();
              const std::byte* from = in_place ? output : input.data();
              return set.start_broadcast(communicator, root,
                                         communicator.rank == root ? from : nullptr, output, bytes);
            });
        ASSERT_TRUE(statuses.has_value()) << n << " ranks, root " << root << ", " << bytes;
        for (std::size_t r = 0; r < ranks; ++r) {
          ASSERT_EQ((*statuses)[r], Status::ok());
          ASSERT_TRUE(outputs[r] == expected) << n << " ranks, root " << root << ", rank " << r;
        }
      }
    }
  }
}

TEST_P(CollectivesSuite, NobodyLeavesABarrierBeforeAllHaveEntered) {
  for (int n = 1; n <= 9; ++n) {
    World world(GetParam(), layouts(n)[0], kSeed + static_cast<unsigned>(n));
    std::vector<OperationSet> sets(static_cast<std::size_t>(n));
    for (int late = 0; late < n; ++late) {
      std::vector<Operation*> operations(static_cast<std::size_t>(n));
      std::vector<bool> done(static_cast<std::size_t>(n));
      const auto turn = [&](std::size_t r) {
        if (operations[r] == nullptr) {
          Communicator communicator = world.communicator(r);
          communicator.sequence = static_cast<std::uint32_t>(late);
          operations[r] = &sets[r].start_barrier(communicator);
        }
        const Result<Progress> progress = operations[r]->advance();
        ASSERT_TRUE(progress.is_ok()) << progress.status().to_string();
        done[r] = *progress == Progress::kDone;
      };
      for (int i = 0; i < 50 * n; ++i) {
        const std::size_t r = world.random()() % static_cast<std::size_t>(n);
        if (r != static_cast<std::size_t>(late)) turn(r);
        world.mesh().idle();
      }
      if (n > 1) {
        EXPECT_EQ(std::count(done.begin(), done.end(), true), 0) << "rank " << late;
      }
      ASSERT_TRUE(drive_until([&] { return std::count(done.begin(), done.end(), false) == 0; },
                              [&] {
                                turn(world.random()() % static_cast<std::size_t>(n));
                                world.mesh().idle();
                              }))
          << n << " ranks";
    }
  }
}

TEST_P(CollectivesSuite, OperationsFollowOneAnotherWithoutWaiting) {
  // A fast rank begins the next operation while others are still in the one before.
  World world(GetParam(), layouts(4)[0], kSeed);
  constexpr int kRounds = 40;
  std::vector<OperationSet> sets(4);
  std::vector<int> round(4, 0);
  std::vector<Operation*> operations(4);
  std::vector<std::vector<float>> values(4, std::vector<float>(3000, 1.0F));
  const auto work = [&] {
    const std::size_t r = world.random()() % 4;
    if (round[r] == kRounds) return;
    if (operations[r] == nullptr) {
      Communicator communicator = world.communicator(r);
      communicator.sequence = static_cast<std::uint32_t>(round[r]);
      const Piece piece{.input = values[r].data(), .output = values[r].data(), .count = 3000};
      operations[r] =
          &sets[r].start_allreduce(kAlgorithms[static_cast<std::size_t>(round[r]) % 3],
                                   communicator, {&piece, 1}, DataType::kFloat32, ReduceOp::kSum);
    }
    const Result<Progress> progress = operations[r]->advance();
    ASSERT_TRUE(progress.is_ok()) << progress.status().to_string();
    if (*progress == Progress::kBlocked) world.mesh().idle();
    if (*progress != Progress::kDone) return;
    operations[r] = nullptr;
    ++round[r];
  };
  ASSERT_TRUE(drive_until(
      [&] { return std::count(round.begin(), round.end(), kRounds) == 4 || HasFatalFailure(); },
      work));
  const float expected = std::ldexp(1.0F, 2 * kRounds);
  for (const auto& v : values) {
    EXPECT_EQ(std::count(v.begin(), v.end(), expected), 3000);
  }
}

TEST_P(CollectivesSuite, ALostRankEndsTheOperationOnAllOthers) {
  for (Algorithm algorithm : kAlgorithms) {
    World world(GetParam(), layouts(3)[0], kSeed);
    std::vector<std::vector<float>> values(3, std::vector<float>(1 << 20, 1.0F));
    int calls = 0;
    const auto statuses =
        world.run([&](OperationSet& set, const Communicator& communicator) -> Operation& {
          const auto r = static_cast<std::size_t>(communicator.rank);
          if (++calls == 3) {  // the last to come finds that it has died
            for (auto& channel : world.mesh().rows[r]) channel.reset();
            Communicator alone = communicator;
            alone.rank = 0;
            alone.size = 1;
            alone.channels = {};
            alone.order = nullptr;
            return set.start_barrier(alone);
          }
          const Piece piece{
              .input = values[r].data(), .output = values[r].data(), .count = values[r].size()};
          return set.start_allreduce(algorithm, communicator, {&piece, 1}, DataType::kFloat32,
                                     ReduceOp::kSum);
        });
    ASSERT_TRUE(statuses.has_value()) << algorithm_name(algorithm);
    int lost = 0;
    for (const Status& status : *statuses) lost += status.code() == StatusCode::kPeerLost ? 1 : 0;
    EXPECT_EQ(lost, 2) << algorithm_name(algorithm);
  }
}

}  // namespace kolo::internal
