#include "tests/fakegpu/nccl/numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ops/half.h"
#include "ops/nccl/abi.h"

namespace fakegpu {
namespace {

namespace nccl = kolo::internal::nccl;

// How an element is stored, and what it is computed in.
template <class Type>
struct Plain {
  using Stored = Type;
  using Value = Type;
  static Value load(Stored stored) { return stored; }
  static Stored store(Value value) { return value; }
};
struct Half {
  using Stored = std::uint16_t;
  using Value = float;
  static Value load(Stored stored) { return kolo::internal::widen_f16(stored); }
  static Stored store(Value value) { return kolo::internal::narrow_f16(value); }
};
struct Bfloat {
  using Stored = std::uint16_t;
  using Value = float;
  static Value load(Stored stored) { return kolo::internal::widen_bf16(stored); }
  static Stored store(Value value) { return kolo::internal::narrow_bf16(value); }
};

// Eight bits: a sign, an exponent, a mantissa. E4M3 has no infinity, and its NaN is all ones.
template <int kMantissaBits>
struct Quarter {
  using Stored = std::uint8_t;
  using Value = float;
  static constexpr int kBias = kMantissaBits == 3 ? 7 : 15;
  static constexpr unsigned kLargest = kMantissaBits == 3 ? 0x7e : 0x7b;
  static constexpr unsigned kNan = 0x7f;

  static float magnitude(unsigned code) {
    const int exponent = static_cast<int>(code >> kMantissaBits);
    const auto mantissa = static_cast<float>(code & ((1u << kMantissaBits) - 1));
    const float fraction = std::ldexp(mantissa, -kMantissaBits);
    return exponent == 0 ? std::ldexp(fraction, 1 - kBias)
                         : std::ldexp(1 + fraction, exponent - kBias);
  }
  static Value load(Stored stored) {
    const unsigned code = stored & 0x7fu;
    float value = magnitude(code);
    if (code > kLargest) value = std::numeric_limits<float>::quiet_NaN();
    if (kMantissaBits == 2 && code == 0x7c) value = std::numeric_limits<float>::infinity();
    return (stored & 0x80u) != 0 ? -value : value;
  }
  // To nearest, ties to even; what is too large becomes the largest.
  static Stored store(Value value) {
    if (std::isnan(value)) return kNan;
    const unsigned sign = std::signbit(value) ? 0x80u : 0u;
    const float size = std::fabs(value);
    unsigned low = 0;
    unsigned high = kLargest;
    while (low < high) {  // the largest code that is not above
      const unsigned middle = (low + high + 1) / 2;
      if (magnitude(middle) <= size) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    if (low < kLargest) {
      const float below = size - magnitude(low);
      const float above = magnitude(low + 1) - size;
      if (above < below || (above == below && low % 2 == 1)) ++low;
    }
    return static_cast<Stored>(sign | low);
  }
};

template <class Value>
Value combine(int op, Value a, Value b) {
  if (op == nccl::kMax) return std::max(a, b);
  if (op == nccl::kMin) return std::min(a, b);
  if constexpr (std::is_integral_v<Value>) {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    return static_cast<Value>(op == nccl::kProd ? x * y : x + y);
  } else {
    return op == nccl::kProd ? a * b : a + b;
  }
}

template <class Stored>
Stored read(const std::byte* data, std::size_t index) {
  Stored stored;
  std::memcpy(&stored, data + index * sizeof stored, sizeof stored);
  return stored;
}

template <class Stored>
void write(std::byte* data, std::size_t index, Stored stored) {
  std::memcpy(data + index * sizeof stored, &stored, sizeof stored);
}

// Calls `body` with the codec of the type; does nothing for what is no type.
template <class Body>
void with_type(int dtype, const Body& body) {
  switch (dtype) {
    case nccl::kInt8: return body(Plain<std::int8_t>());
    case nccl::kUint8: return body(Plain<std::uint8_t>());
    case nccl::kInt32: return body(Plain<std::int32_t>());
    case nccl::kUint32: return body(Plain<std::uint32_t>());
    case nccl::kInt64: return body(Plain<std::int64_t>());
    case nccl::kUint64: return body(Plain<std::uint64_t>());
    case nccl::kFloat16: return body(Half());
    case nccl::kFloat32: return body(Plain<float>());
    case nccl::kFloat64: return body(Plain<double>());
    case nccl::kBfloat16: return body(Bfloat());
    case nccl::kFloat8E4m3: return body(Quarter<3>());
    case nccl::kFloat8E5m2: return body(Quarter<2>());
    default: return;
  }
}

}  // namespace

std::size_t size_of_type(int dtype) {
  std::size_t bytes = 0;
  with_type(dtype, [&bytes](auto codec) { bytes = sizeof(typename decltype(codec)::Stored); });
  return bytes;
}

bool is_floating_type(int dtype) {
  bool is_floating = false;
  with_type(dtype, [&is_floating](auto codec) {
    is_floating = std::is_floating_point_v<typename decltype(codec)::Value>;
  });
  return is_floating;
}

void reduce_arrays(int dtype, int op, std::byte* into, const std::byte* from, std::size_t count) {
  with_type(dtype, [=](auto codec) {
    using Codec = decltype(codec);
    using Stored = typename Codec::Stored;
    for (std::size_t i = 0; i < count; ++i) {
      const auto a = Codec::load(read<Stored>(into, i));
      const auto b = Codec::load(read<Stored>(from, i));
      write<Stored>(into, i, Codec::store(combine(op, a, b)));
    }
  });
}

void multiply_array(int dtype, std::byte* data, const std::byte* factor, std::size_t count) {
  with_type(dtype, [=](auto codec) {
    using Codec = decltype(codec);
    using Stored = typename Codec::Stored;
    const auto by = Codec::load(read<Stored>(factor, 0));
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = Codec::load(read<Stored>(data, i));
      write<Stored>(data, i, Codec::store(combine(nccl::kProd, value, by)));
    }
  });
}

void divide_array(int dtype, std::byte* data, int divisor, std::size_t count) {
  with_type(dtype, [=](auto codec) {
    using Codec = decltype(codec);
    using Stored = typename Codec::Stored;
    using Value = typename Codec::Value;
    for (std::size_t i = 0; i < count; ++i) {
      const Value value = Codec::load(read<Stored>(data, i));
      if constexpr (std::is_floating_point_v<Value>) {
        write<Stored>(data, i, Codec::store(value * (1 / static_cast<Value>(divisor))));
      } else {
        write<Stored>(data, i, static_cast<Stored>(value / static_cast<Value>(divisor)));
      }
    }
  });
}

}  // namespace fakegpu
