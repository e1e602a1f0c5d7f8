// Adasum over one road after another: against a reference in f64, the same bits on all ranks, and
// the bits that channels in memory give. A program includes this and names its roads:
//   INSTANTIATE_TEST_SUITE_P(Inproc, AdasumSuite, testing::Values(...), ...);
#pragma once

#include <cmath>

#include "ops/adasum.h"
#include "tests/conformance/collectives_suite.h"
#include "tests/conformance/inproc_mesh.h"

namespace kolo::internal {

class AdasumSuite : public CollectivesSuite {
 protected:
  using Vector = std::vector<double>;

  struct Sum {
    DataType dtype = DataType::kFloat32;
    double prescale = 1.0;
    double postscale = 1.0;
    bool in_place = false;
  };

  static Vector combine(const Vector& x, const Vector& y) {
    double xx = 0, xy = 0, yy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      xx += x[i] * x[i];
      xy += x[i] * y[i];
      yy += y[i] * y[i];
    }
    const double left = xx == 0 ? 1 : 1 - xy / (2 * xx);
    const double right = yy == 0 ? 1 : 1 - xy / (2 * yy);
    Vector result;
    for (std::size_t i = 0; i < x.size(); ++i) result.push_back(left * x[i] + right * y[i]);
    return result;
  }
  // Over the contiguous tree whose left part is the largest power of two below the count.
  static Vector tree(const std::vector<Vector>& vectors, std::size_t first, std::size_t count) {
    if (count == 1) return vectors[first];
    std::size_t left = 1;
    while (left * 2 < count) left *= 2;
    return combine(tree(vectors, first, left), tree(vectors, first + left, count - left));
  }

  static reference::Bytes encode(DataType dtype, const Vector& values) {
    reference::Bytes bytes(values.size() * element_bytes(dtype));
    reference::visit(dtype, [&]<typename T>(T) {
      if constexpr (std::is_floating_point_v<reference::Work<T>>) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          const auto value = static_cast<reference::Work<T>>(values[i]);
          const T raw = reference::encode<T>(ReduceOp::kSum, value, 1, 1.0);
          std::memcpy(bytes.data() + i * sizeof(T), &raw, sizeof(T));
        }
      }
    });
    return bytes;
  }
  static Vector decode(DataType dtype, const reference::Bytes& bytes, double scale) {
    Vector values;
    reference::visit(dtype, [&]<typename T>(T) {
      for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
        T raw;
        std::memcpy(&raw, bytes.data() + i * sizeof(T), sizeof(T));
        values.push_back(static_cast<double>(reference::decode<T>(raw, scale)));
      }
    });
    return values;
  }

  // The output of every rank.
  static std::vector<reference::Bytes> run(World& world, Algorithm algorithm, const Sum& c,
                                           const std::vector<reference::Bytes>& inputs) {
    const auto n = static_cast<std::size_t>(world.size());
    std::vector<std::unique_ptr<Adasum>> operations(n);
    std::vector<Piece> pieces;
    for (std::size_t r = 0; r < n; ++r) {
      std::byte* input = tensor(world, r, inputs[r]);
      pieces.push_back({.input = input,
                        .output = c.in_place ? input : world.job().memory(r, inputs[r].size()),
                        .count = inputs[r].size() / element_bytes(c.dtype),
                        .prescale = c.prescale,
                        .postscale = c.postscale});
      operations[r] = std::make_unique<Adasum>();
    }
    std::vector<reference::Bytes> outputs(n);
    const auto statuses = world.run(
        [&](std::size_t r) -> Operation& {
          operations[r]->start(world.job().collectives(r, algorithm), world.job().next_sequence(r),
                               pieces[r], c.dtype);
          return *operations[r];
        },
        [&](std::size_t r) { outputs[r] = take(pieces[r].output, inputs[r].size()); });
    EXPECT_TRUE(statuses.has_value()) << "no end";
    if (statuses) {
      for (const Status& status : *statuses) EXPECT_EQ(status, Status::ok());
    }
    world.job().release();
    return outputs;
  }

  static World in_memory(const std::vector<int>& hosts) {
    const Road road{.name = "",
                    .make = [](int size, std::uint64_t) { return inproc_mesh(size, {}); }};
    return World(over_channels(road), hosts, kSeed);
  }

  // Runs it, compares ranks and roads bit by bit, and the values with the reference. The result.
  static Vector check(World& world, Algorithm algorithm, const Sum& c,
                      const std::vector<Vector>& vectors) {
    std::vector<reference::Bytes> inputs;
    std::vector<Vector> given;
    for (const Vector& vector : vectors) {
      inputs.push_back(encode(c.dtype, vector));
      given.push_back(decode(c.dtype, inputs.back(), c.prescale));
    }
    const auto outputs = run(world, algorithm, c, inputs);
    World plain = in_memory(world.job().host_index());
    const auto expected_bits = run(plain, Algorithm::kDirect, c, inputs);
    const std::string where = hosts_text(world, world.job().host_index()) + " " +
                              std::string(data_type_name(c.dtype)) + " count " +
                              std::to_string(vectors[0].size());
    for (const reference::Bytes& output : outputs) {
      EXPECT_TRUE(output == expected_bits[0]) << "other bits: " << where;
    }
    const Vector expected = tree(given, 0, given.size());
    const Vector actual = decode(c.dtype, outputs[0], 1.0);
    double largest = 0;
    for (const Vector& vector : given) {
      for (double value : vector) largest = std::max(largest, std::fabs(value));
    }
    const double precision = c.dtype == DataType::kFloat64   ? 0x1p-45
                             : c.dtype == DataType::kFloat32 ? 0x1p-18
                             : c.dtype == DataType::kFloat16 ? 0x1p-10
                                                             : 0x1p-7;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double value = expected[i] * c.postscale;
      const double scale = std::max(std::fabs(value), largest * std::fabs(c.postscale));
      EXPECT_NEAR(actual[i], value, scale * precision) << where << " element " << i;
      if (HasFailure()) break;
    }
    return actual;
  }

  static std::vector<Vector> random_vectors(World& world, std::size_t count) {
    std::vector<Vector> vectors(static_cast<std::size_t>(world.size()), Vector(count));
    for (Vector& vector : vectors) {
      for (double& value : vector) {
        value = static_cast<double>(world.random()() % 20001) / 10000 - 1;
      }
    }
    return vectors;
  }
};

TEST_P(AdasumSuite, GivesWhatTheReferenceDoesForEveryTypeAndNumberOfRanks) {
  for (int n = 1; n <= 9; ++n) {
    for (const std::vector<int>& hosts : layouts(n)) {
      World world(GetParam(), hosts, kSeed + static_cast<unsigned>(n));
      const auto ranks = static_cast<std::size_t>(n);
      for (DataType dtype :
           {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64}) {
        for (std::size_t count :
             {std::size_t{0}, std::size_t{1}, ranks - 1, ranks, ranks + 1, std::size_t{1000}}) {
          if (leave_out(world, 2)) continue;
          const bool scaled = world.random()() % 2 == 0;
          check(world, algorithms()[world.random()() % algorithms().size()],
                {.dtype = dtype,
                 .prescale = scaled ? 0.5 : 1.0,
                 .postscale = scaled ? 3.0 : 1.0,
                 .in_place = world.random()() % 2 == 0},
                random_vectors(world, count));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(AdasumSuite, LongVectorsTakeManyShortSteps) {
  if (layouts(3).empty()) GTEST_SKIP() << "not for three ranks";
  World world(GetParam(), layouts(3).back(), kSeed);
  check(world, Algorithm::kDirect, {.dtype = DataType::kFloat32},
        random_vectors(world, (std::size_t{1} << 20) / kSanitizedSlowdown / 2 + 3));
}

TEST_P(AdasumSuite, AddsOrthogonalOnesAveragesEqualOnesAndIgnoresZeros) {
  for (int n : {2, 3, 4}) {
    if (layouts(n).empty()) continue;
    World world(GetParam(), layouts(n).back(), kSeed);
    const auto ranks = static_cast<std::size_t>(n);
    const std::size_t count = 8 * ranks;
    const Vector one = random_vectors(world, count)[0];
    std::vector<Vector> orthogonal(ranks, Vector(count, 0.0)), zeros = orthogonal;
    for (std::size_t i = 0; i < count; ++i) orthogonal[i % ranks][i] = one[i];
    zeros[ranks - 1] = one;
    const Sum c{.dtype = DataType::kFloat64};
    EXPECT_EQ(check(world, Algorithm::kDirect, c, orthogonal), one);
    EXPECT_EQ(check(world, Algorithm::kDirect, c, zeros), one);
    EXPECT_EQ(check(world, Algorithm::kDirect, c, std::vector<Vector>(ranks, Vector(count))),
              Vector(count));
    const Vector averaged = check(world, Algorithm::kDirect, c, std::vector<Vector>(ranks, one));
    for (std::size_t i = 0; i < count; ++i) EXPECT_NEAR(averaged[i], one[i], 1e-14);
  }
}

TEST_P(AdasumSuite, ANanMakesAllOfItNanOnAllRanks) {
  if (layouts(3).empty()) GTEST_SKIP() << "not for three ranks";
  World world(GetParam(), layouts(3).back(), kSeed);
  for (DataType dtype : {DataType::kFloat16, DataType::kFloat32}) {
    std::vector<reference::Bytes> inputs;
    for (Vector vector : random_vectors(world, 100)) {
      if (inputs.size() == 1) vector[77] = std::nan("");
      inputs.push_back(encode(dtype, vector));
    }
    for (const reference::Bytes& output :
         run(world, Algorithm::kDirect, {.dtype = dtype}, inputs)) {
      for (double value : decode(dtype, output, 1.0)) ASSERT_TRUE(std::isnan(value));
    }
  }
}

}  // namespace kolo::internal
