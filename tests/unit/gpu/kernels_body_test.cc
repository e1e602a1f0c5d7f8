// The bodies of kolo's kernels, run on the CPU thread by thread: every type, change of type,
// alignment and edge of a tile against arithmetic of the compiler's own, and nothing beside the
// tensors is touched.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/types.h"
#include "ops/cuda/kernels.cuh"
#include "ops/nonfinite.h"

namespace kolo::internal::cuda {
namespace {

constexpr DataType kShortFloats[] = {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32};
constexpr std::byte kGuard{0xa5};
constexpr std::size_t kGuardBytes = 64;

std::uint64_t bits_at(const std::byte* at, std::size_t bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, bytes);
  return bits;
}

template <typename To, typename From>
To cast_bits(From from) {
  return __builtin_bit_cast(To, from);
}

double value_of(DataType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DataType::kFloat16:
      return static_cast<double>(cast_bits<_Float16>(static_cast<std::uint16_t>(bits)));
    case DataType::kBfloat16: return cast_bits<float>(static_cast<std::uint32_t>(bits << 16));
    case DataType::kFloat32: return cast_bits<float>(static_cast<std::uint32_t>(bits));
    default: return cast_bits<double>(bits);
  }
}

// The nearest bf16, found among its two neighbours; of two as near the even one.
std::uint64_t nearest_bf16(float value) {
  if (std::isinf(value)) return cast_bits<std::uint32_t>(value) >> 16;
  const std::uint32_t below = cast_bits<std::uint32_t>(value) >> 16;
  const auto magnitude = [](std::uint32_t bits) {
    if ((bits & 0x7fffu) == 0x7f80u) return 0x1p128;
    return std::fabs(static_cast<double>(cast_bits<float>(bits << 16)));
  };
  const double wanted = std::fabs(static_cast<double>(value));
  const double down = wanted - magnitude(below);
  const double up = magnitude(below + 1) - wanted;
  return down < up || (down == up && below % 2 == 0) ? below : below + 1;
}

// `bits` times `scale`, as the result's bits; `is_nan` instead where no bits are promised.
std::uint64_t expected_bits(DataType from, DataType to, std::uint64_t bits, double scale,
                            bool& is_nan) {
  const double in = value_of(from, bits);
  if (to == DataType::kFloat64) {
    const double product = in * scale;
    is_nan = std::isnan(product);
    return cast_bits<std::uint64_t>(product);
  }
  const float product = static_cast<float>(in) * static_cast<float>(scale);
  is_nan = std::isnan(product);
  if (is_nan) return 0;
  if (to == DataType::kFloat32) return cast_bits<std::uint32_t>(product);
  if (to == DataType::kBfloat16) return nearest_bf16(product);
  return cast_bits<std::uint16_t>(static_cast<_Float16>(product));
}

// Random bits, every eighth one special.
void fill_element(DataType dtype, std::byte* at, std::mt19937_64& random) {
  constexpr double kSpecials[] = {0.0,     -0.0,     INFINITY, -INFINITY, NAN,   0x1p-14, 0x1p-24,
                                  0x1p-25, 0x1p-126, 0x1p-149, 65504.0,   65520, 3.3e38,  1.0};
  std::uint64_t bits = random();
  const double special = kSpecials[bits / 8 % std::size(kSpecials)];
  if (bits % 8 == 0) {
    switch (dtype) {
      case DataType::kFloat16:
        bits = cast_bits<std::uint16_t>(static_cast<_Float16>(special));
        break;
      case DataType::kBfloat16:
        bits = cast_bits<std::uint32_t>(static_cast<float>(special)) >> 16;
        break;
      case DataType::kFloat32: bits = cast_bits<std::uint32_t>(static_cast<float>(special)); break;
      case DataType::kFloat64: bits = cast_bits<std::uint64_t>(special); break;
      default: break;
    }
  }
  std::memcpy(at, &bits, element_bytes(dtype));
}

struct Shape {
  std::size_t count = 0;
  std::size_t tensor_shift = 0;  // bytes from a multiple of 16
  std::size_t buffer_shift = 0;
};

struct Case {
  DataType tensor = DataType::kFloat32;
  DataType buffer = DataType::kFloat32;
  double scale = 1.0;
  bool counts = false;
  std::vector<Shape> shapes;
};

// Memory with guards, whose beginning is at a multiple of 16.
struct Guarded {
  explicit Guarded(std::size_t bytes) : bytes_(bytes), memory((bytes + 15) / 16 + 2 * kUnits) {
    std::memset(memory.data(), static_cast<int>(kGuard), memory.size() * sizeof(Unit));
  }
  std::byte* begin() { return reinterpret_cast<std::byte*>(memory.data() + kUnits); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct alignas(16) Unit {
    std::byte bytes[16];
  };
  static constexpr std::size_t kUnits = kGuardBytes / sizeof(Unit);
  std::size_t bytes_;

 public:
  std::vector<Unit> memory;
};

class KernelBodies : public testing::Test {
 protected:
  void run(const Case& c, bool is_pack);

 private:
  void prepare(const Case& c);
  void compare(const Case& c, bool is_pack);

  std::mt19937_64 random_{20261130};
  std::vector<Guarded> tensors_;
  std::vector<std::byte> before_;  // of the side that is written
  BatchArguments batch_;
  std::vector<unsigned long long> found_;  // by tensor
  std::vector<std::vector<std::byte>> inputs_;
};

struct Counters {
  static constexpr bool kCounts = true;
  std::vector<unsigned long long>& counts;
  void add(unsigned tensor, std::uint32_t found) { counts.at(tensor) += found; }
};

constexpr unsigned kBlocks = 3;
constexpr unsigned kThreadsHere = 32;

template <typename Body>
void on_every_thread(Body body) {
  for (unsigned block = 0; block < kBlocks; ++block) {
    for (unsigned thread = 0; thread < kThreadsHere; ++thread) {
      body(DevicePlace{block, kBlocks, thread, kThreadsHere});
    }
  }
}

void KernelBodies::prepare(const Case& c) {
  const std::size_t tensor_bytes = element_bytes(c.tensor);
  const std::size_t buffer_bytes = element_bytes(c.buffer);
  tensors_.clear();
  batch_ = BatchArguments{};
  batch_.scale = c.scale;
  batch_.tensor_type = static_cast<std::int32_t>(c.tensor);
  batch_.buffer_type = static_cast<std::int32_t>(c.buffer);
  found_.assign(c.counts ? c.shapes.size() : 0, 0);
  batch_.counters = c.counts ? found_.data() : nullptr;
  std::size_t end = 0;
  for (const Shape& shape : c.shapes) {
    tensors_.emplace_back(shape.count * tensor_bytes + shape.tensor_shift);
    BatchTensor& tensor = batch_.tensors[batch_.tensor_count++];
    tensor.offset = end + shape.buffer_shift;
    tensor.count = shape.count;
    tensor.first_tile = batch_.tiles;
    batch_.tiles += (shape.count + kTileElements - 1) / kTileElements;
    end = (tensor.offset + shape.count * buffer_bytes + kGuardBytes + 15) / 16 * 16;
  }
  tensors_.emplace_back(end);
  batch_.buffer = tensors_.back().begin();
  for (std::size_t i = 0; i < c.shapes.size(); ++i) {
    batch_.tensors[i].memory = tensors_[i].begin() + c.shapes[i].tensor_shift;
  }
}

void KernelBodies::run(const Case& c, bool is_pack) {
  SCOPED_TRACE((is_pack ? "pack " : "unpack ") + std::string(data_type_name(c.tensor)) + " " +
               std::string(data_type_name(c.buffer)) + " scale " + std::to_string(c.scale));
  prepare(c);
  const DataType in_type = is_pack ? c.tensor : c.buffer;
  const std::size_t in_bytes = element_bytes(in_type);
  inputs_.clear();
  for (std::size_t i = 0; i < c.shapes.size(); ++i) {
    const BatchTensor& tensor = batch_.tensors[i];
    std::byte* in =
        is_pack ? static_cast<std::byte*>(tensor.memory) : batch_.buffer + tensor.offset;
    for (std::size_t j = 0; j < tensor.count; ++j)
      fill_element(in_type, in + j * in_bytes, random_);
    inputs_.emplace_back(in, in + tensor.count * in_bytes);
  }
  Counters counters{found_};
  on_every_thread([&](DevicePlace place) {
    if (is_pack) {
      pack_body(batch_, place);
    } else if (c.counts) {
      unpack_counted_body(batch_, place, counters);
    } else {
      unpack_body(batch_, place);
    }
  });
  compare(c, is_pack);
  if (is_pack || !c.counts || !is_floating(c.tensor)) return;
  const std::vector<unsigned long long> by_unpack = found_;
  found_.assign(found_.size(), 0);
  on_every_thread([&](DevicePlace place) { count_body(batch_, place, counters); });
  EXPECT_EQ(found_, by_unpack) << "counted where they lie";
}

void KernelBodies::compare(const Case& c, bool is_pack) {
  const DataType from = is_pack ? c.tensor : c.buffer;
  const DataType to = is_pack ? c.buffer : c.tensor;
  const std::size_t in_bytes = element_bytes(from);
  const std::size_t out_bytes = element_bytes(to);
  const bool is_plain = from == to && c.scale == 1.0;
  for (std::size_t i = 0; i < c.shapes.size(); ++i) {
    unsigned long long nonfinite = 0;
    const BatchTensor& tensor = batch_.tensors[i];
    std::byte* out =
        is_pack ? batch_.buffer + tensor.offset : static_cast<std::byte*>(tensor.memory);
    for (std::size_t j = 0; j < tensor.count; ++j) {
      const std::uint64_t in = bits_at(inputs_[i].data() + j * in_bytes, in_bytes);
      const std::uint64_t actual = bits_at(out + j * out_bytes, out_bytes);
      bool is_nan = false;
      const std::uint64_t wanted =
          is_plain || !is_floating(to) ? in : expected_bits(from, to, in, c.scale, is_nan);
      if (is_nan) {
        ASSERT_TRUE(std::isnan(value_of(to, actual))) << "tensor " << i << " element " << j;
      } else {
        ASSERT_EQ(actual, wanted) << "tensor " << i << " element " << j << " from " << in;
      }
      if (is_floating(to) && !std::isfinite(value_of(to, actual))) ++nonfinite;
    }
    // What lies beside it is as it was.
    for (std::size_t k = 0; k < kGuardBytes / 2; ++k) {
      ASSERT_EQ(out[tensor.count * out_bytes + k], kGuard) << "after tensor " << i;
    }
    if (tensor.offset > 0 || !is_pack) {
      ASSERT_EQ(out[-1], kGuard) << "before tensor " << i;
    }
    if (is_pack || !c.counts) continue;
    EXPECT_EQ(found_[i], nonfinite) << "tensor " << i;
    EXPECT_EQ(count_nonfinite(to, out, tensor.count), nonfinite) << "tensor " << i;
  }
}

std::vector<Shape> shapes_of(DataType tensor, DataType buffer) {
  const std::size_t t = element_bytes(tensor);
  const std::size_t b = element_bytes(buffer);
  return {{1, 0, 0},
          {15, 0, 0},
          {16, t, b},
          {0, 0, 0},
          {17, t, 0},
          {100, 0, b},
          {4095, 0, 0},
          {4096, 0, 0},
          {4097, 3 * t, 3 * b},
          {10000, 2 * t, 2 * b},
          {333, 1, 0},
          {333, 0, 1},
          {333, 3, 5},
          {5000, 0, 0},
          {64, 16 - t, 16 - b},
          {12289, 0, 16}};
}

void each_change(const std::function<void(DataType, DataType)>& visit) {
  for (const DataType tensor : kShortFloats) {
    for (const DataType buffer : kShortFloats) visit(tensor, buffer);
  }
  visit(DataType::kFloat64, DataType::kFloat64);
}

TEST_F(KernelBodies, ChangeAndScaleAsTheCpuDoes) {
  each_change([&](DataType tensor, DataType buffer) {
    for (const double scale : {1.0, 0.5, 3.0, 0.1, 1e-3}) {
      for (const bool counts : {false, true}) {
        const Case c{tensor, buffer, scale, counts, shapes_of(tensor, buffer)};
        run(c, true);
        run(c, false);
      }
    }
  });
}

TEST_F(KernelBodies, CopyEveryType) {
  for (int number = 0; number < kDataTypeCount; ++number) {
    const auto dtype = static_cast<DataType>(number);
    const Case c{dtype, dtype, 1.0, false, shapes_of(dtype, dtype)};
    run(c, true);
    run(c, false);
  }
}

TEST_F(KernelBodies, EveryAlignmentOfBothSides) {
  each_change([&](DataType tensor, DataType buffer) {
    for (std::size_t at = 0; at < 16; ++at) {
      Case c{tensor, buffer, 0.25, true, {}};
      for (std::size_t other = 0; other < 16; ++other) c.shapes.push_back({77, at, other});
      run(c, true);
      run(c, false);
    }
  });
}

TEST_F(KernelBodies, AFullBatchOfTinyTensors) {
  Case c{DataType::kFloat32, DataType::kBfloat16, 1.0, false, {}};
  for (unsigned i = 0; i < kBatchTensors; ++i) c.shapes.push_back({i % 7 + 1, 0, 0});
  run(c, true);
  run(c, false);
}

TEST_F(KernelBodies, CountsOfManyTensorsKeepApart) {
  Case c{DataType::kFloat16, DataType::kFloat16, 1.0, true, {}};
  for (unsigned i = 0; i < kBatchTensors; ++i) c.shapes.push_back({i * 97 % 9001 + 1, 0, 0});
  run(c, false);
}

TEST_F(KernelBodies, IntegersIgnoreWhatOnlyFloatsHave) {
  const Case c{DataType::kInt32, DataType::kInt32, 1.0, true, {{1000, 0, 0}}};
  run(c, false);
}

}  // namespace
}  // namespace kolo::internal::cuda
