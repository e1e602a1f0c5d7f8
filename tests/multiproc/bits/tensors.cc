#include "tests/multiproc/bits/tensors.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>

namespace kolo::bits {
namespace {

// Where ways of reducing change: one shot or two over a window and over sockets (32 KiB, less per
// peer), tiles (256 KiB), tensors that travel alone (256 KiB), payloads that go with the order
// (40 bytes).
constexpr std::size_t kBordersBytes[] = {40, 10922, 32 << 10, 64 << 10, 256 << 10, 1 << 20};

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15U + b + 0x632be59bd9b4e019U;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9U;
  return x ^ (x >> 32);
}

// Floats as sign, a few exponents around 1, any mantissa: sums need rounding and stay finite.
std::uint64_t bits_of_value(kolo_dtype dtype, std::uint64_t random) {
  const std::uint64_t sign = random >> 63;
  const std::uint64_t spread = (random >> 52) & 7;  // 8 binary exponents
  switch (dtype) {
    case KOLO_FLOAT16: return sign << 15 | (11 + spread) << 10 | (random & 0x3ff);
    case KOLO_BFLOAT16: return sign << 15 | (123 + spread) << 7 | (random & 0x7f);
    case KOLO_FLOAT32: return sign << 31 | (123 + spread) << 23 | (random & 0x7fffff);
    case KOLO_FLOAT64: return sign << 63 | (1019 + spread) << 52 | (random & 0xfffffffffffff);
    default: return random;  // integers wrap around
  }
}

}  // namespace

std::size_t bytes_of(kolo_dtype dtype) {
  switch (dtype) {
    case KOLO_FLOAT16:
    case KOLO_BFLOAT16: return 2;
    case KOLO_FLOAT64: return 8;
    default: return 4;
  }
}

std::vector<Tensor> tensors(std::uint64_t seed) {
  constexpr kolo_dtype kTypes[] = {KOLO_FLOAT16, KOLO_BFLOAT16, KOLO_FLOAT32, KOLO_FLOAT64,
                                   KOLO_INT32};
  std::mt19937_64 random(seed);
  std::vector<Tensor> list;
  const auto add = [&](kolo_dtype dtype, std::size_t count) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(list.size());
    tensor.dtype = dtype;
    tensor.count = count;
    tensor.in_place = random() % 2 == 0;
    tensor.allocated = random() % 2 == 0;
    if (dtype != KOLO_INT32 && random() % 3 == 0) {
      tensor.prescale = 0.3;
      tensor.postscale = 1.7;
    }
    if (random() % 3 == 0) tensor.op = KOLO_AVG;
    if (count < 20'000 && random() % 4 == 0) {
      tensor.group = static_cast<int>(random() % kGroups);
      tensor.prescale = tensor.postscale = 1.0;
    }
    list.push_back(tensor);
  };
  for (const kolo_dtype dtype : kTypes) {
    for (const std::size_t border : kBordersBytes) {
      const std::size_t at = border / bytes_of(dtype);
      if (border >= 256 << 10 && dtype != KOLO_FLOAT32 && random() % 2 == 0) continue;
      add(dtype, at + random() % 3 - 1);
    }
    for (const std::size_t count : {std::size_t{1}, std::size_t{3}, 1 + random() % 3000}) {
      add(dtype, count);
    }
  }
  add(KOLO_FLOAT32, 1'000'003);  // many tiles
  return list;
}

std::vector<std::uint8_t> values_of(const Tensor& tensor, std::size_t index, int round, int rank,
                                    std::uint64_t seed) {
  const std::size_t width = bytes_of(tensor.dtype);
  std::vector<std::uint8_t> bytes(tensor.count * width);
  const std::uint64_t start = mix(mix(mix(seed, index), static_cast<std::uint64_t>(round)),
                                  static_cast<std::uint64_t>(rank));
  for (std::size_t i = 0; i < tensor.count; ++i) {
    const std::uint64_t bits = bits_of_value(tensor.dtype, mix(start, i));
    std::memcpy(bytes.data() + i * width, &bits, width);  // little-endian
  }
  return bytes;
}

void Hash::add(const void* memory, std::size_t bytes) {
  const auto* at = static_cast<const std::uint8_t*>(memory);
  while (bytes > 0) {
    const std::size_t step = std::min<std::size_t>(bytes, sizeof(std::uint64_t));
    std::uint64_t word = 0;
    std::memcpy(&word, at, step);
    value_ = (value_ ^ word) * 0x100000001b3U;
    value_ ^= value_ >> 31;  // a word's upper bits must reach the lower ones
    at += step;
    bytes -= step;
  }
}

std::string Hash::text() const {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value_));
  return text;
}

}  // namespace kolo::bits
