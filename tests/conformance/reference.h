// What a collective must give, computed in one process by the plainest code: one element at a time,
// recursively, without the kernels or programs of ops/ (only its scalar conversions, which have
// tests of their own).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <type_traits>
#include <vector>

#include "base/types.h"
#include "ops/half.h"

namespace kolo::internal::reference {

using Bytes = std::vector<std::byte>;

struct Half16 {
  std::uint16_t bits;
};
struct Brain16 {
  std::uint16_t bits;
};
struct Boolean {
  std::uint8_t value;
};

// Calls fn(T{}) with the C++ type of a dtype that can be reduced.
template <typename Fn>
void visit(DataType dtype, const Fn& fn) {
  switch (dtype) {
    case DataType::kInt8: return fn(std::int8_t{});
    case DataType::kUint8: return fn(std::uint8_t{});
    case DataType::kInt16: return fn(std::int16_t{});
    case DataType::kUint16: return fn(std::uint16_t{});
    case DataType::kInt32: return fn(std::int32_t{});
    case DataType::kUint32: return fn(std::uint32_t{});
    case DataType::kInt64: return fn(std::int64_t{});
    case DataType::kUint64: return fn(std::uint64_t{});
    case DataType::kFloat16: return fn(Half16{});
    case DataType::kBfloat16: return fn(Brain16{});
    case DataType::kFloat32: return fn(float{});
    case DataType::kFloat64: return fn(double{});
    case DataType::kBool: return fn(Boolean{});
    case DataType::kFloat8E4m3:
    case DataType::kFloat8E5m2: return;
  }
}

// The type in which values are combined: 16-bit floats in f32, integers and bools exactly.
template <typename T>
using Work = std::conditional_t<std::is_same_v<T, Half16> || std::is_same_v<T, Brain16>, float,
                                std::conditional_t<std::is_floating_point_v<T>, T, __int128>>;

template <typename T>
Work<T> decode(T raw, double prescale) {
  if constexpr (std::is_same_v<T, Half16>) {
    return widen_f16(raw.bits) * static_cast<float>(prescale);
  } else if constexpr (std::is_same_v<T, Brain16>) {
    return widen_bf16(raw.bits) * static_cast<float>(prescale);
  } else if constexpr (std::is_same_v<T, Boolean>) {
    return raw.value != 0;
  } else if constexpr (std::is_floating_point_v<T>) {
    return raw * static_cast<T>(prescale);
  } else {
    return raw;
  }
}

// Multiplication of integers may leave 128 bits; only the low 64 matter.
inline __int128 wrapped_product(__int128 a, __int128 b) {
  return static_cast<__int128>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

template <typename T>
Work<T> combine(ReduceOp op, Work<T> a, Work<T> b) {
  if constexpr (std::is_same_v<T, Boolean>) {
    return op == ReduceOp::kSum || op == ReduceOp::kMax ? (a | b) : (a & b);
  } else {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg: return a + b;
      case ReduceOp::kProd:
        if constexpr (std::is_same_v<Work<T>, __int128>) return wrapped_product(a, b);
        return a * b;
      case ReduceOp::kMax:
      case ReduceOp::kMin:
      case ReduceOp::kAdasum: break;
    }
    if constexpr (std::is_floating_point_v<Work<T>>) {
      if (std::isnan(a)) return a;
      if (std::isnan(b)) return b;
      if (a == b) return std::signbit(a) == (op == ReduceOp::kMin) ? a : b;
    }
    return (op == ReduceOp::kMax) == (a > b) ? a : b;
  }
}

template <typename T>
T encode(ReduceOp op, Work<T> value, int contributors, double postscale) {
  if constexpr (std::is_floating_point_v<Work<T>>) {
    if (op == ReduceOp::kAvg) value = value / static_cast<Work<T>>(contributors);
    value = value * static_cast<Work<T>>(postscale);
    if (std::isnan(value)) value = std::numeric_limits<Work<T>>::quiet_NaN();
    if constexpr (std::is_same_v<T, Half16>) {
      return {narrow_f16(value)};
    } else if constexpr (std::is_same_v<T, Brain16>) {
      return {narrow_bf16(value)};
    } else {
      return value;
    }
  } else {
    if (op == ReduceOp::kAvg) value /= contributors;
    if constexpr (std::is_same_v<T, Boolean>) {
      return {static_cast<std::uint8_t>(value)};
    } else {
      return static_cast<T>(value);
    }
  }
}

// The contributions of ranks; of those that have joined there is none.
template <typename T>
using Values = std::vector<std::optional<Work<T>>>;

template <typename T>
std::optional<Work<T>> combine(ReduceOp op, std::optional<Work<T>> a, std::optional<Work<T>> b) {
  if (!a) return b;
  return b ? combine<T>(op, *a, *b) : a;
}

// T over values[first, first + count).
template <typename T>
std::optional<Work<T>> tree(ReduceOp op, const Values<T>& values, std::size_t first,
                            std::size_t count) {
  if (count == 1) return values[first];
  std::size_t left = 1;
  while (left * 2 < count) left *= 2;
  return combine<T>(op, tree<T>(op, values, first, left),
                    tree<T>(op, values, first + left, count - left));
}

// T over each host's ranks, then over hosts in the order of their first ranks.
template <typename T>
std::optional<Work<T>> canonical(ReduceOp op, const Values<T>& by_rank,
                                 const std::vector<int>& host_index) {
  Values<T> of_hosts;
  std::vector<bool> taken(by_rank.size());
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    if (taken[r]) continue;
    Values<T> of_host;
    for (std::size_t q = r; q < by_rank.size(); ++q) {
      if (host_index[q] != host_index[r]) continue;
      taken[q] = true;
      of_host.push_back(by_rank[q]);
    }
    of_hosts.push_back(tree<T>(op, of_host, 0, of_host.size()));
  }
  return tree<T>(op, of_hosts, 0, of_hosts.size());
}

// The balanced chunk of a tensor of `count` elements that the element is in.
inline std::size_t balanced_chunk(std::size_t count, std::size_t chunks, std::size_t element) {
  const std::size_t base = count / chunks;
  const std::size_t larger = count % chunks;
  return element < larger * (base + 1) ? element / (base + 1)
                                       : larger + (element - larger * (base + 1)) / base;
}

// The ring's order: upwards from the rank after the one whose chunk the element is in.
template <typename T>
std::optional<Work<T>> around(ReduceOp op, const Values<T>& by_rank, std::size_t chunk) {
  const std::size_t n = by_rank.size();
  std::optional<Work<T>> sum = by_rank[(chunk + 1) % n];
  for (std::size_t i = 2; i <= n; ++i) sum = combine<T>(op, sum, by_rank[(chunk + i) % n]);
  return sum;
}

struct Allreduce {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<int> host_index;
  bool ring = false;
  std::vector<bool> joined = {};         // by rank; empty: none has
  std::vector<std::size_t> chunks = {};  // elements by rank, of the ring; empty: balanced
};

// Whose chunk of the ring the element is in.
inline std::size_t chunk_of(const Allreduce& what, std::size_t count, std::size_t element) {
  if (what.chunks.empty()) return balanced_chunk(count, what.host_index.size(), element);
  std::size_t chunk = 0;
  for (std::size_t end = what.chunks[0]; element >= end; end += what.chunks[chunk]) ++chunk;
  return chunk;
}

// inputs[rank]: bytes of the same number of elements.
inline Bytes allreduce(const Allreduce& what, const std::vector<Bytes>& inputs) {
  Bytes result(inputs[0].size());
  const auto joined = std::count(what.joined.begin(), what.joined.end(), true);
  const int contributors = static_cast<int>(std::ssize(inputs) - joined);
  visit(what.dtype, [&]<typename T>(T) {
    const std::size_t count = inputs[0].size() / sizeof(T);
    Values<T> values(inputs.size());
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t r = 0; r < inputs.size(); ++r) {
        if (joined > 0 && what.joined[r]) continue;
        T raw;
        std::memcpy(&raw, inputs[r].data() + i * sizeof(T), sizeof(T));
        values[r] = decode<T>(raw, what.prescale);
      }
      const std::optional<Work<T>> sum = what.ring
                                             ? around<T>(what.op, values, chunk_of(what, count, i))
                                             : canonical<T>(what.op, values, what.host_index);
      const T out = encode<T>(what.op, *sum, contributors, what.postscale);
      std::memcpy(result.data() + i * sizeof(T), &out, sizeof(T));
    }
  });
  return result;
}

// Random elements. Floats: mostly of like size, sometimes zeros, infinities, NaNs, subnormals or
// any bits at all; others: any bits.
inline Bytes random_elements(DataType dtype, std::size_t count, std::mt19937_64& random) {
  Bytes bytes(count * element_bytes(dtype));
  visit(dtype, [&]<typename T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      T value;
      const std::uint64_t bits = random();
      std::memcpy(&value, &bits, sizeof(T));
      if (is_floating(dtype) && random() % 8 != 0) {
        const double real = std::ldexp(static_cast<double>(random() % 20000) - 10000.0, -12);
        if constexpr (std::is_same_v<T, Half16>) {
          value = {narrow_f16(static_cast<float>(real))};
        } else if constexpr (std::is_same_v<T, Brain16>) {
          value = {narrow_bf16(static_cast<float>(real))};
        } else if constexpr (std::is_floating_point_v<T>) {
          value = static_cast<T>(real);
        }
      }
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

}  // namespace kolo::internal::reference
