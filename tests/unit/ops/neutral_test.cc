// Neutral elements against the reference that leaves the joined ranks out of the tree, bit by bit,
// and the count of what is not finite.
#include "ops/neutral.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ops/mxcsr_guard.h"
#include "ops/nonfinite.h"
#include "ops/tensor_group.h"
#include "tests/conformance/reference.h"

namespace kolo::internal {
namespace {

using reference::Bytes;

constexpr std::uint64_t kSeed = 515151;

// Values that are easily changed by a zero, a one or an infinity, before any random ones.
template <typename T>
std::vector<T> special_values() {
  using Limits = std::numeric_limits<T>;
  return {T{0},
          -T{0},
          Limits::denorm_min(),
          -Limits::denorm_min(),
          Limits::min(),
          -Limits::max(),
          Limits::max(),
          Limits::infinity(),
          -Limits::infinity(),
          Limits::quiet_NaN()};
}

Bytes elements(DataType dtype, std::size_t count, std::mt19937_64& random) {
  Bytes bytes = reference::random_elements(dtype, count, random);
  const auto put = [&](auto values) {
    using T = typename decltype(values)::value_type;
    for (std::size_t i = 0; i < count; i += 1 + random() % 3) {
      const T value = values[random() % values.size()];
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  };
  if (dtype == DataType::kFloat32) put(special_values<float>());
  if (dtype == DataType::kFloat64) put(special_values<double>());
  if (dtype == DataType::kFloat16) {
    put(std::vector<std::uint16_t>{0, 0x8000, 1, 0x8001, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00});
  }
  if (dtype == DataType::kBfloat16) {
    put(std::vector<std::uint16_t>{0, 0x8000, 1, 0x8001, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0});
  }
  return bytes;
}

struct Case {
  DataType dtype;
  ReduceOp op;
  double prescale = 1.0;
  std::vector<int> hosts;
  std::vector<bool> joined;
};

std::string text(const Case& c) {
  std::string text = std::string(data_type_name(c.dtype)) + " " +
                     std::string(reduce_op_name(c.op)) + " prescale " + std::to_string(c.prescale);
  for (bool joined : c.joined) text += joined ? " joined" : " here";
  return text + " seed " + std::to_string(kSeed);
}

void check(const Case& c, std::mt19937_64& random) {
  constexpr std::size_t kCount = 67;
  const std::size_t n = c.hosts.size();
  std::vector<Bytes> inputs;
  std::vector<const std::byte*> pointers;
  int contributors = 0;
  for (std::size_t r = 0; r < n; ++r) {
    inputs.push_back(elements(c.dtype, kCount, random));
    contributors += c.joined[r] ? 0 : 1;
  }
  const Bytes expected = reference::allreduce({.dtype = c.dtype,
                                               .op = c.op,
                                               .prescale = c.prescale,
                                               .postscale = 1.0,
                                               .host_index = c.hosts,
                                               .joined = c.joined},
                                              inputs);
  for (std::size_t r = 0; r < n; ++r) {
    if (c.joined[r]) fill_neutral(c.dtype, c.op, c.prescale, inputs[r].data(), kCount);
    pointers.push_back(inputs[r].data());
  }
  Bytes output(expected.size());
  const Piece piece{nullptr, output.data(), kCount, c.prescale, 1.0};
  const ReductionOrder order(c.hosts);
  TensorGroup group;
  group.start({&piece, 1}, {c.dtype, c.op, contributors}, order, TensorGroup::Layout::kWhole);
  const MxcsrGuard guard;
  group.reduce({0, kCount}, pointers, output.data());
  ASSERT_TRUE(output == expected) << text(c);
}

TEST(Neutral, LeavesTheBitsOfAllOthersAsTheyAre) {
  std::mt19937_64 random(kSeed);
  int checked = 0;
  for (int d = 0; d < kDataTypeCount; ++d) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto dtype = static_cast<DataType>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (!can_reduce(dtype, op)) continue;
      const bool scaled = is_floating(dtype) && op != ReduceOp::kProd;
      for (double prescale : {1.0, 0.3, -2.5, -1.0, 1e-310, -1e-60}) {
        if (prescale != 1.0 && !scaled) continue;
        for (std::size_t n = 1; n <= 9; ++n) {
          Case c{dtype, op, prescale, {}, {}};
          for (std::size_t r = 0; r < n; ++r) {
            c.hosts.push_back(static_cast<int>(random() % 3));
            c.joined.push_back(random() % 2 == 0);
          }
          c.joined[random() % n] = false;
          ASSERT_NO_FATAL_FAILURE(check(c, random));
          ++checked;
        }
      }
    }
  }
  EXPECT_EQ(checked, (9 * 5 - 1 + 4 * (4 * 6 + 1)) * 9);
}

TEST(Neutral, FillsEveryElementAndNothingElse) {
  for (std::size_t count : {0u, 1u, 2u, 3u, 1000u, 4097u}) {
    std::vector<std::int64_t> memory(count + 2, 7);
    fill_neutral(DataType::kInt64, ReduceOp::kMin, 1.0, memory.data() + 1, count);
    EXPECT_EQ(memory.front(), 7);
    EXPECT_EQ(memory.back(), 7);
    for (std::size_t i = 1; i <= count; ++i) ASSERT_EQ(memory[i], INT64_MAX) << i;
  }
  float zero = 1;
  fill_neutral(DataType::kFloat32, ReduceOp::kAdasum, 0.5, &zero, 1);
  EXPECT_EQ(zero, 0.0F);
  EXPECT_FALSE(std::signbit(zero));
}

TEST(Nonfinite, CountsNansAndInfinities) {
  std::mt19937_64 random(kSeed + 1);
  for (DataType dtype :
       {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64}) {
    constexpr std::size_t kCount = 5000;
    const Bytes bytes = elements(dtype, kCount, random);
    std::uint64_t expected = 0;
    reference::visit(dtype, [&]<typename T>(T) {
      for (std::size_t i = 0; i < kCount; ++i) {
        T raw;
        std::memcpy(&raw, bytes.data() + i * sizeof(T), sizeof(T));
        expected += std::isfinite(static_cast<double>(reference::decode<T>(raw, 1.0))) ? 0u : 1u;
      }
    });
    EXPECT_GT(expected, 100u);
    Bytes shifted(bytes.size() + 1);
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
    EXPECT_EQ(count_nonfinite(dtype, shifted.data() + 1, kCount), expected)
        << data_type_name(dtype);
  }
  const std::vector<std::uint8_t> ones(64, 0xff);
  EXPECT_EQ(count_nonfinite(DataType::kInt32, ones.data(), 16), 0u);
  EXPECT_EQ(count_nonfinite(DataType::kFloat32, ones.data(), 0), 0u);
}

}  // namespace
}  // namespace kolo::internal
