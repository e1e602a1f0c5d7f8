#include "bench/kolo_bench/data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace kolo::bench {
namespace {

constexpr std::size_t kPeriod = 251;  // a prime

template <typename T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// For whole numbers from 0 to 2048, which is all that is ever written.
std::uint16_t to_f16(double value) {
  const auto whole = static_cast<unsigned>(value);
  if (whole == 0) return 0;
  const int exponent = std::bit_width(whole) - 1;
  if (exponent > 10) return 0x7e00;  // NaN: equal to nothing
  const unsigned fraction = (whole - (1U << exponent)) << (10 - exponent);
  return static_cast<std::uint16_t>((static_cast<unsigned>(exponent + 15) << 10) | fraction);
}

double from_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  double value = std::ldexp(fraction, -24);
  if (exponent == 0x1f) value = fraction == 0 ? HUGE_VAL : std::nan("");
  if (exponent > 0 && exponent < 0x1f) value = std::ldexp(0x400 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -value : value;
}

// Exact for whole numbers below 256.
std::uint16_t to_bf16(double value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
}

double from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// The largest share by which a result may differ: what one rounding to the type can do.
double tolerance(kolo_dtype dtype) {
  switch (dtype) {
    case KOLO_FLOAT16: return 0x1p-10;
    case KOLO_BFLOAT16: return 0x1p-7;
    case KOLO_FLOAT32: return 0x1p-22;
    case KOLO_FLOAT64: return 0x1p-50;
    default: return 0;
  }
}

// An integer as the type keeps it: the lowest bits.
double wrapped(kolo_dtype dtype, std::uint64_t value) {
  switch (dtype) {
    case KOLO_INT8: return static_cast<std::int8_t>(value);
    case KOLO_UINT8: return static_cast<std::uint8_t>(value);
    case KOLO_INT16: return static_cast<std::int16_t>(value);
    case KOLO_UINT16: return static_cast<std::uint16_t>(value);
    case KOLO_INT32: return static_cast<std::int32_t>(value);
    case KOLO_UINT32: return static_cast<std::uint32_t>(value);
    case KOLO_INT64: return static_cast<double>(static_cast<std::int64_t>(value));
    default: return static_cast<double>(value);
  }
}

double reduced_value(const Content& content, std::size_t i) {
  const bool product = content.op == KOLO_PROD;
  std::uint64_t sum = 0;
  std::uint64_t wrapping_product = 1;
  double whole_product = 1;
  std::int64_t least = input_value(content, 0, i);
  std::int64_t most = least;
  for (int rank = 0; rank < content.ranks; ++rank) {
    const std::int64_t value = input_value(content, rank, i);
    sum += static_cast<std::uint64_t>(value);
    wrapping_product *= static_cast<std::uint64_t>(value);
    whole_product *= static_cast<double>(value);
    least = std::min(least, value);
    most = std::max(most, value);
  }
  if (content.op == KOLO_MAX || (content.dtype == KOLO_BOOL && content.op == KOLO_SUM)) {
    return static_cast<double>(most);
  }
  if (content.op == KOLO_MIN || (content.dtype == KOLO_BOOL && product)) {
    return static_cast<double>(least);
  }
  if (is_float(content.dtype)) {
    const auto total = static_cast<double>(sum);
    if (content.op == KOLO_AVG) return total / content.ranks;
    return product ? whole_product : total;
  }
  const auto ranks = static_cast<std::uint64_t>(content.ranks);
  if (content.op == KOLO_AVG) return wrapped(content.dtype, sum / ranks);
  return wrapped(content.dtype, product ? wrapping_product : sum);
}

// Copies one period again and again.
void repeat(const std::vector<std::byte>& period, std::byte* to, std::size_t bytes) {
  for (std::size_t begin = 0; begin < bytes; begin += period.size()) {
    std::memcpy(to + begin, period.data(), std::min(period.size(), bytes - begin));
  }
}

// Wrong elements of a part, `period` being what it should repeat.
std::size_t wrong_in(kolo_dtype dtype, const std::vector<double>& values,
                     const std::vector<std::byte>& period, const std::byte* part,
                     std::size_t count) {
  const std::size_t size = dtype_bytes(dtype);
  std::size_t wrong = 0;
  for (std::size_t begin = 0; begin < count; begin += kPeriod) {
    const std::size_t here = std::min(kPeriod, count - begin);
    const std::byte* piece = part + begin * size;
    if (std::memcmp(piece, period.data(), here * size) == 0) continue;
    for (std::size_t i = 0; i < here; ++i) {
      const double off = std::abs(load_element(dtype, piece + i * size) - values[i]);
      wrong += off <= tolerance(dtype) * std::abs(values[i]) ? 0 : 1;  // NaN is wrong
    }
  }
  return wrong;
}

}  // namespace

std::int64_t input_value(const Content& content, int rank, std::size_t i) {
  const std::size_t mixed = (i % kPeriod) * 7 + static_cast<std::size_t>(rank) * 3 + content.tensor;
  const bool is_reduced = reduces(content.collective);
  if (content.dtype == KOLO_BOOL) return static_cast<std::int64_t>(mixed % 2);
  // Products stay small: of eight neighbouring ranks one puts in a 2, the others a 1.
  if (is_reduced && content.op == KOLO_PROD) return mixed % 8 == 0 ? 2 : 1;
  return static_cast<std::int64_t>(mixed % (is_reduced ? 4 : 113));
}

double expected_value(const Content& content, int source, std::size_t i) {
  switch (content.collective) {
    case Collective::kAllreduce:
    case Collective::kReduceScatter: return reduced_value(content, i);
    case Collective::kAllgather:
    case Collective::kAlltoall: return static_cast<double>(input_value(content, source, i));
    case Collective::kBroadcast: return static_cast<double>(input_value(content, content.root, i));
    case Collective::kBarrier: break;
  }
  return 0;
}

void store_element(kolo_dtype dtype, double value, std::byte* at) {
  switch (dtype) {
    case KOLO_FLOAT16: return store(at, to_f16(value));
    case KOLO_BFLOAT16: return store(at, to_bf16(value));
    case KOLO_FLOAT32: return store(at, static_cast<float>(value));
    case KOLO_FLOAT64: return store(at, value);
    case KOLO_INT16:
    case KOLO_UINT16: return store(at, static_cast<std::uint16_t>(static_cast<int>(value)));
    case KOLO_INT32:
    case KOLO_UINT32: return store(at, static_cast<std::uint32_t>(static_cast<int>(value)));
    case KOLO_INT64:
    case KOLO_UINT64: return store(at, static_cast<std::uint64_t>(static_cast<int>(value)));
    default: return store(at, static_cast<std::uint8_t>(static_cast<int>(value)));
  }
}

double load_element(kolo_dtype dtype, const std::byte* at) {
  switch (dtype) {
    case KOLO_INT8: return load<std::int8_t>(at);
    case KOLO_INT16: return load<std::int16_t>(at);
    case KOLO_UINT16: return load<std::uint16_t>(at);
    case KOLO_INT32: return load<std::int32_t>(at);
    case KOLO_UINT32: return load<std::uint32_t>(at);
    case KOLO_INT64: return static_cast<double>(load<std::int64_t>(at));
    case KOLO_UINT64: return static_cast<double>(load<std::uint64_t>(at));
    case KOLO_FLOAT16: return from_f16(load<std::uint16_t>(at));
    case KOLO_BFLOAT16: return from_bf16(load<std::uint16_t>(at));
    case KOLO_FLOAT32: return static_cast<double>(load<float>(at));
    case KOLO_FLOAT64: return load<double>(at);
    default: return load<std::uint8_t>(at);
  }
}

void fill_input(const Content& content, int rank, void* memory, std::size_t count) {
  const std::size_t size = dtype_bytes(content.dtype);
  std::vector<std::byte> period(kPeriod * size);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    const auto value = static_cast<double>(input_value(content, rank, i));
    store_element(content.dtype, value, period.data() + i * size);
  }
  repeat(period, static_cast<std::byte*>(memory), count * size);
}

std::size_t count_wrong(const Content& content, int rank, const void* output, std::size_t count) {
  if (content.collective == Collective::kBarrier) return 0;
  const std::size_t size = dtype_bytes(content.dtype);
  // The output in parts of `count`, each of one source; and where in the inputs they begin.
  const bool by_source = output_count(content.collective, 1, content.ranks) > 1;
  const bool by_block = input_count(content.collective, 1, content.ranks) > 1;
  const int parts = by_source ? content.ranks : 1;
  const std::size_t first = by_block ? static_cast<std::size_t>(rank) * count : 0;
  std::vector<double> values(kPeriod);
  std::vector<std::byte> period(kPeriod * size);
  std::size_t wrong = 0;
  for (int part = 0; part < parts; ++part) {
    for (std::size_t i = 0; i < kPeriod; ++i) {
      values[i] = expected_value(content, part, first + i);
      store_element(content.dtype, values[i], period.data() + i * size);
    }
    const auto* begin =
        static_cast<const std::byte*>(output) + static_cast<std::size_t>(part) * count * size;
    wrong += wrong_in(content.dtype, values, period, begin, count);
  }
  return wrong;
}

}  // namespace kolo::bench
