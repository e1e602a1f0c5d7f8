// Conversions to and from 16-bit floats: against the compiler's own _Float16 and exact arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "ops/half.h"

namespace kolo::internal {
namespace {

std::uint16_t compiler_narrow(float value) {
  return __builtin_bit_cast(std::uint16_t, static_cast<_Float16>(value));
}

TEST(Float16, WidensEveryValueExactly) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float expected = static_cast<float>(__builtin_bit_cast(_Float16, half));
    const float actual = widen_f16(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << bits;
    } else {
      EXPECT_EQ(bits_of_float(actual), bits_of_float(expected)) << bits;
      EXPECT_EQ(narrow_f16(actual), half) << bits;
    }
  }
}

TEST(Float16, NarrowsToTheNearestTiesToEven) {
  // Every f16 value, every halfway point above it, and the f32 neighbours of both.
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float value = widen_f16(static_cast<std::uint16_t>(bits));
    const float above = bits == 0x7bff ? 65536.0F : widen_f16(static_cast<std::uint16_t>(bits + 1));
    for (float point : {value, (value + above) / 2}) {
      for (float f : {point, std::nextafter(point, 0.0F), std::nextafter(point, 1e9F)}) {
        EXPECT_EQ(narrow_f16(f), compiler_narrow(f)) << std::hexfloat << f;
        EXPECT_EQ(narrow_f16(-f), compiler_narrow(-f)) << std::hexfloat << -f;
      }
    }
  }
  EXPECT_EQ(narrow_f16(65519.996F), 0x7bff);
  EXPECT_EQ(narrow_f16(65520.0F), 0x7c00);
  EXPECT_EQ(narrow_f16(0x1p-25F), 0x0000);  // halfway to the smallest subnormal: even
  EXPECT_EQ(narrow_f16(std::nextafter(0x1p-25F, 1.0F)), 0x0001);
}

TEST(Float16, NarrowsRandomBitsAndSpecials) {
  std::mt19937 random(4711);
  for (int i = 0; i < 2000000; ++i) {
    const float value = float_of_bits(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) {
      EXPECT_GT(narrow_f16(value) & 0x7fff, 0x7c00);
    } else {
      ASSERT_EQ(narrow_f16(value), compiler_narrow(value)) << std::hexfloat << value;
    }
  }
  EXPECT_EQ(narrow_f16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(narrow_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(narrow_f16(-0.0F), 0x8000);
}

// The nearest bf16 by comparing distances in double, where they are exact.
std::uint16_t nearest_bf16(float value) {
  const std::uint32_t low = bits_of_float(value) & 0xffff0000u;
  const double x = value;
  const double a = float_of_bits(low);
  // Past the largest finite value the next step counts as 2^128.
  const bool to_infinity = (low & 0x7fffffffu) == 0x7f7f0000u;
  const double b = to_infinity ? std::copysign(0x1p128, x) : double{float_of_bits(low + 0x10000u)};
  const bool up = std::abs(x - a) > std::abs(b - x) ||
                  (std::abs(x - a) == std::abs(b - x) && ((low >> 16) & 1u) != 0);
  return static_cast<std::uint16_t>((low >> 16) + (up ? 1u : 0u));
}

TEST(Bfloat16, WidensEveryValueAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = widen_bf16(half);
    EXPECT_EQ(bits_of_float(value), bits << 16);
    if (std::isnan(value)) {
      EXPECT_GT(narrow_bf16(value) & 0x7fff, 0x7f80);
    } else {
      EXPECT_EQ(narrow_bf16(value), half);
    }
  }
}

TEST(Bfloat16, NarrowsToTheNearestTiesToEven) {
  std::mt19937 random(4712);
  for (int i = 0; i < 2000000; ++i) {
    auto bits = static_cast<std::uint32_t>(random());
    if (i % 4 == 0) bits = (bits & 0xffff0000u) | 0x8000u;  // halfway
    if (i % 4 == 1) bits = bits & 0x807fffffu;              // subnormal
    const float value = float_of_bits(bits);
    if (std::isnan(value)) {
      ASSERT_GT(narrow_bf16(value) & 0x7fff, 0x7f80);
    } else if (std::isinf(value)) {
      ASSERT_EQ(narrow_bf16(value), bits >> 16);
    } else {
      ASSERT_EQ(narrow_bf16(value), nearest_bf16(value)) << std::hexfloat << value;
    }
  }
}

}  // namespace
}  // namespace kolo::internal
