#include "tests/multiproc/bits/plain.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/multiproc/bits/tensors.h"

namespace kolo::bits {
namespace {

// A 16-bit float's layout. Every value of either type is a float's.
struct Layout16 {
  int mantissa_bits;
  int least_exponent;  // of a normal number
};
constexpr Layout16 kHalf{10, -14};
constexpr Layout16 kBrain{7, -126};

float widen(std::uint16_t bits, const Layout16& layout) {
  const int exponent_bits = 15 - layout.mantissa_bits;
  const int field = (bits >> layout.mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << layout.mantissa_bits) - 1);
  const int whole = field == 0 ? mantissa : mantissa + (1 << layout.mantissa_bits);
  const int exponent = layout.least_exponent + (field == 0 ? 0 : field - 1);
  const float size = std::ldexp(static_cast<float>(whole), exponent - layout.mantissa_bits);
  return (bits & 0x8000) != 0 ? -size : size;
}

// To the nearest, ties to even, as nearbyint does it. Finite values in range only.
std::uint16_t narrow(float value, const Layout16& layout) {
  const double size = std::fabs(static_cast<double>(value));
  int exponent = size == 0 ? layout.least_exponent : std::ilogb(size);
  if (exponent < layout.least_exponent) exponent = layout.least_exponent;
  // A mantissa that rounds up to the next power of two carries into the exponent by itself.
  const auto units =
      static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, layout.mantissa_bits - exponent)));
  const std::uint32_t hidden = 1U << layout.mantissa_bits;
  const auto field = static_cast<std::uint32_t>(exponent - layout.least_exponent);
  const std::uint32_t bits = units < hidden ? units : (field << layout.mantissa_bits) + units;
  return static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000U : 0U));
}

template <typename T>
T tree(const T* values, int count) {
  if (count == 1) return values[0];
  int left = 1;
  while (2 * left < count) left *= 2;
  return static_cast<T>(tree(values, left) + tree(values + left, count - left));
}

template <typename T>
T over_hosts(const std::vector<T>& by_rank, const std::vector<int>& hosts) {
  std::vector<T> of_hosts;
  const T* at = by_rank.data();
  for (const int ranks : hosts) {
    of_hosts.push_back(tree(at, ranks));
    at += ranks;
  }
  return tree(of_hosts.data(), static_cast<int>(of_hosts.size()));
}

template <typename T>
T finish(T sum, const Tensor& tensor, int ranks) {
  if (tensor.op == KOLO_AVG) sum /= static_cast<T>(ranks);
  return sum * static_cast<T>(tensor.postscale);
}

// The sum of element `i` goes to `out`, at which the element begins.
using Inputs = std::vector<std::vector<std::uint8_t>>;

template <typename Stored, typename Work, typename Load, typename Store>
void reduce(const Tensor& tensor, const Inputs& inputs, const std::vector<int>& hosts,
            std::vector<std::uint8_t>& output, const Load& load, const Store& store) {
  std::vector<Work> values(inputs.size());
  for (std::size_t i = 0; i < tensor.count; ++i) {
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      Stored stored;
      std::memcpy(&stored, inputs[rank].data() + i * sizeof stored, sizeof stored);
      values[rank] = load(stored);
    }
    const Stored stored = store(over_hosts(values, hosts));
    std::memcpy(output.data() + i * sizeof stored, &stored, sizeof stored);
  }
}

template <typename T>
void reduce_floats(const Tensor& tensor, const Inputs& inputs, const std::vector<int>& hosts,
                   std::vector<std::uint8_t>& output) {
  const auto ranks = static_cast<int>(inputs.size());
  reduce<T, T>(
      tensor, inputs, hosts, output, [&](T x) { return x * static_cast<T>(tensor.prescale); },
      [&](T sum) { return finish(sum, tensor, ranks); });
}

void reduce_16(const Tensor& tensor, const Inputs& inputs, const std::vector<int>& hosts,
               std::vector<std::uint8_t>& output, const Layout16& layout) {
  const auto ranks = static_cast<int>(inputs.size());
  reduce<std::uint16_t, float>(
      tensor, inputs, hosts, output,
      [&](std::uint16_t x) { return widen(x, layout) * static_cast<float>(tensor.prescale); },
      [&](float sum) { return narrow(finish(sum, tensor, ranks), layout); });
}

// Sums wrap around; an average is that of the exact sum, toward zero.
void reduce_integers(const Tensor& tensor, const Inputs& inputs, const std::vector<int>& hosts,
                     std::vector<std::uint8_t>& output) {
  const auto ranks = static_cast<std::int64_t>(inputs.size());
  reduce<std::int32_t, std::int64_t>(
      tensor, inputs, hosts, output, [](std::int32_t x) { return std::int64_t{x}; },
      [&](std::int64_t sum) {
        return static_cast<std::int32_t>(tensor.op == KOLO_AVG ? sum / ranks : sum);
      });
}

}  // namespace

std::string reference_hash(const std::vector<int>& hosts, std::uint64_t seed) {
  const int ranks = std::accumulate(hosts.begin(), hosts.end(), 0);
  const std::vector<Tensor> list = tensors(seed);
  Hash hash;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Tensor& tensor = list[i];
      Inputs inputs;
      for (int rank = 0; rank < ranks; ++rank) {
        inputs.push_back(values_of(tensor, i, round, rank, seed));
      }
      std::vector<std::uint8_t> output(inputs[0].size());
      switch (tensor.dtype) {
        case KOLO_FLOAT16: reduce_16(tensor, inputs, hosts, output, kHalf); break;
        case KOLO_BFLOAT16: reduce_16(tensor, inputs, hosts, output, kBrain); break;
        case KOLO_FLOAT32: reduce_floats<float>(tensor, inputs, hosts, output); break;
        case KOLO_FLOAT64: reduce_floats<double>(tensor, inputs, hosts, output); break;
        default: reduce_integers(tensor, inputs, hosts, output); break;
      }
      hash.add(output.data(), output.size());
    }
  }
  return hash.text();
}

}  // namespace kolo::bits
