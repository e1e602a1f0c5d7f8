// Reduction kernels: every dtype and op against the plain reference, both instruction sets against
// each other bit by bit, and the cases that are easily got wrong, by hand.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ops/host_map.h"
#include "ops/mxcsr_guard.h"
#include "ops/reduce_kernels.h"
#include "tests/conformance/reference.h"

namespace kolo::internal {
namespace {

using reference::Bytes;

constexpr std::uint64_t kSeed = 90210;

std::vector<KernelVariant> variants() {
  std::vector<KernelVariant> all = {KernelVariant::kPortable};
  if (kernel_variant_runs(KernelVariant::kAvx2)) all.push_back(KernelVariant::kAvx2);
  return all;
}

template <typename Fn>
void for_every_kind(const Fn& fn) {
  for (int d = 0; d < kDataTypeCount; ++d) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto dtype = static_cast<DataType>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (can_reduce(dtype, op)) fn(dtype, op);
    }
  }
}

std::string kind_text(DataType dtype, ReduceOp op) {
  return std::string(data_type_name(dtype)) + " " + std::string(reduce_op_name(op));
}

struct Scales {
  double pre = 1.0;
  double post = 1.0;
};

// Reduces with every tensor `misalignment` bytes off alignment; the result checked for overruns.
Bytes run_kernel(KernelVariant variant, DataType dtype, ReduceOp op, const ReductionOrder& order,
                 const std::vector<Bytes>& inputs, Scales scales = {},
                 std::size_t misalignment = 0) {
  const std::size_t bytes = inputs[0].size();
  std::vector<Bytes> shifted;
  std::vector<const std::byte*> pointers;
  for (const Bytes& input : inputs) {
    Bytes& copy = shifted.emplace_back(misalignment);
    copy.insert(copy.end(), input.begin(), input.end());
  }
  for (const Bytes& input : shifted) pointers.push_back(input.data() + misalignment);
  constexpr std::byte kCanary{0xa5};
  Bytes output(misalignment + bytes + 32, kCanary);
  const AlignedBytes scratch = allocate_aligned(reduce_scratch_bytes(order.stack_depth()));
  const MxcsrGuard guard;
  reduce_kernel(dtype, op, variant)
      .reduce({.steps = order.steps().data(),
               .step_count = order.steps().size(),
               .stack_depth = order.stack_depth(),
               .inputs = pointers.data(),
               .output = output.data() + misalignment,
               .count = bytes / element_bytes(dtype),
               .scale = {.prescale = scales.pre,
                         .postscale = scales.post,
                         .contributors = order.size()},
               .scratch = scratch.get()});
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (i < misalignment || i >= misalignment + bytes) {
      EXPECT_EQ(output[i], kCanary) << i;
    }
  }
  return {output.begin() + static_cast<std::ptrdiff_t>(misalignment),
          output.begin() + static_cast<std::ptrdiff_t>(misalignment + bytes)};
}

std::vector<Bytes> random_inputs(DataType dtype, std::size_t n, std::size_t count,
                                 std::mt19937_64& random) {
  std::vector<Bytes> inputs;
  for (std::size_t r = 0; r < n; ++r) {
    inputs.push_back(reference::random_elements(dtype, count, random));
  }
  return inputs;
}

TEST(ReduceKernels, MatchTheReferenceForEveryKindAndNumberOfRanks) {
  std::mt19937_64 random(kSeed);
  for_every_kind([&](DataType dtype, ReduceOp op) {
    for (std::size_t n = 1; n <= 9; ++n) {
      std::vector<int> hosts;
      for (std::size_t r = 0; r < n; ++r) hosts.push_back(random() % 2 != 0 ? 1 : 0);
      const ReductionOrder order(hosts);
      const std::vector<Bytes> inputs = random_inputs(dtype, n, 1100, random);
      const Scales scales = is_floating(dtype) && n % 2 == 0 ? Scales{0.3, 1.7} : Scales{};
      const Bytes expected = reference::allreduce({.dtype = dtype,
                                                   .op = op,
                                                   .prescale = scales.pre,
                                                   .postscale = scales.post,
                                                   .host_index = hosts},
                                                  inputs);
      for (KernelVariant variant : variants()) {
        ASSERT_TRUE(run_kernel(variant, dtype, op, order, inputs, scales) == expected)
            << kind_text(dtype, op) << " n=" << n << " seed " << kSeed;
      }
    }
  });
}

TEST(ReduceKernels, AllAlignmentsAndCountsGiveTheSameBits) {
  std::mt19937_64 random(kSeed + 1);
  for_every_kind([&](DataType dtype, ReduceOp op) {
    for (std::size_t n : {2u, 4u, 5u}) {
      const ReductionOrder order = ReductionOrder::single_host(static_cast<int>(n));
      const std::vector<Bytes> whole = random_inputs(dtype, n, 70, random);
      const Bytes expected = run_kernel(KernelVariant::kPortable, dtype, op, order, whole);
      for (std::size_t misalignment = 0; misalignment < 17; ++misalignment) {
        const std::size_t count = random() % 71;
        std::vector<Bytes> inputs = whole;
        for (Bytes& input : inputs) input.resize(count * element_bytes(dtype));
        for (KernelVariant variant : variants()) {
          const Bytes actual = run_kernel(variant, dtype, op, order, inputs, {}, misalignment);
          ASSERT_TRUE(std::equal(actual.begin(), actual.end(), expected.begin()))
              << kind_text(dtype, op) << " n=" << n << " off by " << misalignment;
        }
      }
    }
  });
}

TEST(ReduceKernels, InstructionSetsAgreeOnRandomBits) {
  if (!kernel_variant_runs(KernelVariant::kAvx2)) GTEST_SKIP() << "no AVX2 here";
  std::mt19937_64 random(kSeed + 2);
  for_every_kind([&](DataType dtype, ReduceOp op) {
    const ReductionOrder order = ReductionOrder::single_host(3);
    std::vector<Bytes> inputs(3, Bytes(40000 * element_bytes(dtype)));
    for (Bytes& input : inputs) {
      for (std::byte& b : input) b = static_cast<std::byte>(random());
    }
    const Scales scales = is_floating(dtype) ? Scales{0.37, 2.9} : Scales{};
    EXPECT_TRUE(run_kernel(KernelVariant::kPortable, dtype, op, order, inputs, scales) ==
                run_kernel(KernelVariant::kAvx2, dtype, op, order, inputs, scales))
        << kind_text(dtype, op);
  });
}

TEST(ReduceKernels, RingStepsFoldInTheOrderOfTheRing) {
  std::mt19937_64 random(kSeed + 3);
  for_every_kind([&](DataType dtype, ReduceOp op) {
    constexpr std::size_t kCount = 1500;
    const std::vector<Bytes> inputs = random_inputs(dtype, 3, kCount, random);
    const ReduceScale scale{.prescale = is_floating(dtype) ? 0.3 : 1.0,
                            .postscale = is_floating(dtype) ? 3.1 : 1.0,
                            .contributors = 3};
    // ((0 1) 2) is also the tree of three.
    const Bytes expected = reference::allreduce({.dtype = dtype,
                                                 .op = op,
                                                 .prescale = scale.prescale,
                                                 .postscale = scale.postscale,
                                                 .host_index = {0, 0, 0}},
                                                inputs);
    for (KernelVariant variant : variants()) {
      const ReduceKernel& kernel = reduce_kernel(dtype, op, variant);
      const AlignedBytes partial = allocate_aligned(kCount * kernel.accumulator_bytes);
      Bytes output = inputs[2];  // in place
      const MxcsrGuard guard;
      kernel.lift(inputs[0].data(), partial.get(), kCount, scale);
      kernel.fold(partial.get(), inputs[1].data(), kCount, scale);
      kernel.fold_finish(partial.get(), output.data(), output.data(), kCount, scale);
      EXPECT_TRUE(output == expected) << kind_text(dtype, op);
      if (kernel.lift_is_copy && !is_floating(dtype)) {
        Bytes raw = inputs[0];
        std::memcpy(partial.get(), raw.data(), raw.size());
        kernel.fold(partial.get(), inputs[1].data(), kCount, scale);
        kernel.fold_finish(partial.get(), inputs[2].data(), output.data(), kCount, scale);
        EXPECT_TRUE(output == expected) << kind_text(dtype, op) << " from a raw tensor";
      }
    }
  });
}

// The same in two halves: a partial for each host of more than one rank, then over the hosts.
Bytes run_halves(KernelVariant variant, DataType dtype, ReduceOp op, const std::vector<int>& hosts,
                 const std::vector<Bytes>& inputs, Scales scales, std::size_t misalignment) {
  const HostMap map(hosts);
  const std::size_t count = inputs[0].size() / element_bytes(dtype);
  const ReduceKernel& kernel = reduce_kernel(dtype, op, variant);
  const ReduceScale scale{
      .prescale = scales.pre, .postscale = scales.post, .contributors = map.size()};
  std::vector<Bytes> operands(static_cast<std::size_t>(map.hosts()), Bytes(misalignment));
  std::vector<unsigned char> partials;
  std::vector<const std::byte*> pointers;
  const auto run = [&](auto function, const ReductionOrder& order,
                       const std::vector<const std::byte*>& from, std::byte* to) {
    const AlignedBytes scratch = allocate_aligned(reduce_scratch_bytes(order.stack_depth()));
    function({.steps = order.steps().data(),
              .step_count = order.steps().size(),
              .stack_depth = order.stack_depth(),
              .inputs = from.data(),
              .partials = partials.data(),
              .output = to,
              .count = count,
              .scale = scale,
              .scratch = scratch.get()});
  };
  const MxcsrGuard guard;
  for (int h = 0; h < map.hosts(); ++h) {
    Bytes& operand = operands[static_cast<std::size_t>(h)];
    std::vector<const std::byte*> of_host;
    for (int rank : map.ranks(h)) of_host.push_back(inputs[static_cast<std::size_t>(rank)].data());
    if (of_host.size() == 1) {
      operand.insert(operand.end(), of_host[0], of_host[0] + inputs[0].size());
    } else {
      operand.resize(misalignment + count * kernel.accumulator_bytes);
      run(kernel.reduce_partial, ReductionOrder::single_host(map.local_size(h)), of_host,
          operand.data() + misalignment);
    }
    pointers.push_back(operand.data() + misalignment);
  }
  for (int h = 0; h < map.hosts(); ++h) partials.push_back(map.local_size(h) > 1 ? 1 : 0);
  Bytes output(inputs[0].size());
  run(kernel.combine, ReductionOrder::single_host(map.hosts()), pointers, output.data());
  return output;
}

TEST(ReduceKernels, TwoHalvesWithPartialsBetweenGiveTheBitsOfTheWhole) {
  std::mt19937_64 random(kSeed + 5);
  const std::vector<std::vector<int>> layouts = {
      {0, 1},          {0, 0, 1},          {0, 1, 2, 3},          {0, 0, 1, 1}, {0, 1, 0, 1, 1},
      {0, 1, 2, 3, 4}, {0, 0, 0, 1, 2, 2}, {0, 0, 1, 2, 2, 3, 3}, {0, 0}};
  for_every_kind([&](DataType dtype, ReduceOp op) {
    for (const std::vector<int>& hosts : layouts) {
      const std::vector<Bytes> inputs = random_inputs(dtype, hosts.size(), 1100, random);
      const Scales scales = is_floating(dtype) && random() % 2 == 0 ? Scales{0.3, 1.7} : Scales{};
      const Bytes expected = reference::allreduce({.dtype = dtype,
                                                   .op = op,
                                                   .prescale = scales.pre,
                                                   .postscale = scales.post,
                                                   .host_index = hosts},
                                                  inputs);
      for (KernelVariant variant : variants()) {
        ASSERT_TRUE(run_halves(variant, dtype, op, hosts, inputs, scales, random() % 17) ==
                    expected)
            << kind_text(dtype, op) << " n=" << hosts.size() << " seed " << kSeed + 5;
      }
    }
  });
}

TEST(ReduceKernels, ACallersEnvironmentChangesNoBitOfAnyFloatingType) {
  std::mt19937_64 random(kSeed + 6);
  constexpr unsigned kFlushAndDazRoundUp = 0x1f80 | 0x8000 | 0x0040 | 0x4000;
  for_every_kind([&](DataType dtype, ReduceOp op) {
    if (!is_floating(dtype)) return;
    // Subnormals and numbers near them: the sums, products and scaled values are subnormal too.
    std::vector<Bytes> inputs = random_inputs(dtype, 4, 999, random);
    const std::size_t size = element_bytes(dtype);
    for (Bytes& input : inputs) {
      for (std::size_t i = 0; i < input.size(); i += size) {
        if (random() % 3 != 0) input[i + size - 1] &= std::byte{0x80};  // exponent close to none
      }
    }
    const ReductionOrder order = ReductionOrder::single_host(4);
    const Bytes expected = reference::allreduce(
        {.dtype = dtype, .op = op, .prescale = 0.75, .postscale = 1.5, .host_index = {0, 0, 0, 0}},
        inputs);
    for (KernelVariant variant : variants()) {
      const unsigned saved = _mm_getcsr();
      _mm_setcsr(kFlushAndDazRoundUp);
      const Bytes whole = run_kernel(variant, dtype, op, order, inputs, {0.75, 1.5});
      const Bytes halves = run_halves(variant, dtype, op, {0, 0, 1, 1}, inputs, {0.75, 1.5}, 0);
      _mm_setcsr(saved);
      EXPECT_TRUE(whole == expected) << kind_text(dtype, op) << " seed " << kSeed + 6;
      EXPECT_TRUE(halves == expected) << kind_text(dtype, op) << " seed " << kSeed + 6;
    }
  });
}

// Reduces one element given as values of T.
template <typename T>
T reduce_values(DataType dtype, ReduceOp op, const std::vector<T>& values, Scales scales = {}) {
  std::vector<Bytes> inputs;
  for (const T& value : values) {
    Bytes& bytes = inputs.emplace_back(37 * sizeof(T));  // some whole vectors and a rest
    for (std::size_t i = 0; i < 37; ++i) std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
  }
  const ReductionOrder order = ReductionOrder::single_host(static_cast<int>(values.size()));
  std::vector<Bytes> results;
  for (KernelVariant variant : variants()) {
    results.push_back(run_kernel(variant, dtype, op, order, inputs, scales));
    EXPECT_EQ(results.back(), results.front());
    for (std::size_t i = 1; i < 37; ++i) {
      EXPECT_EQ(std::memcmp(&results.back()[0], &results.back()[i * sizeof(T)], sizeof(T)), 0);
    }
  }
  T result;
  std::memcpy(&result, results[0].data(), sizeof(T));
  return result;
}

TEST(ReduceKernels, IntegerSumsAndProductsWrap) {
  EXPECT_EQ(reduce_values<std::int8_t>(DataType::kInt8, ReduceOp::kSum, {127, 1}), -128);
  EXPECT_EQ(reduce_values<std::uint16_t>(DataType::kUint16, ReduceOp::kProd, {65535, 65535}), 1);
  EXPECT_EQ(reduce_values<std::int32_t>(DataType::kInt32, ReduceOp::kSum, {INT32_MAX, 1}),
            INT32_MIN);
  EXPECT_EQ(reduce_values<std::int64_t>(DataType::kInt64, ReduceOp::kProd, {INT64_MAX, 2}), -2);
}

TEST(ReduceKernels, IntegerAveragesTruncateTowardsZeroAndNeverOverflow) {
  EXPECT_EQ(reduce_values<std::int32_t>(DataType::kInt32, ReduceOp::kAvg, {-3, -4}), -3);
  EXPECT_EQ(reduce_values<std::int32_t>(DataType::kInt32, ReduceOp::kAvg, {3, 4}), 3);
  EXPECT_EQ(reduce_values<std::int8_t>(DataType::kInt8, ReduceOp::kAvg, {-128, -128, -127}), -127);
  EXPECT_EQ(reduce_values<std::int64_t>(DataType::kInt64, ReduceOp::kAvg,
                                        {INT64_MAX, INT64_MAX, INT64_MAX}),
            INT64_MAX);
  EXPECT_EQ(reduce_values<std::int64_t>(DataType::kInt64, ReduceOp::kAvg, {INT64_MIN, INT64_MIN}),
            INT64_MIN);
  EXPECT_EQ(reduce_values<std::uint64_t>(DataType::kUint64, ReduceOp::kAvg,
                                         {UINT64_MAX, UINT64_MAX - 2, UINT64_MAX - 4, UINT64_MAX}),
            UINT64_MAX - 2);
}

TEST(ReduceKernels, AnyNonZeroByteIsTrueAndResultsAreZeroOrOne) {
  const auto b = [](ReduceOp op, std::vector<std::uint8_t> values) {
    return reduce_values<std::uint8_t>(DataType::kBool, op, values);
  };
  EXPECT_EQ(b(ReduceOp::kSum, {2, 4}), 1);
  EXPECT_EQ(b(ReduceOp::kProd, {2, 4}), 1);  // 2 & 4 would be 0
  EXPECT_EQ(b(ReduceOp::kMin, {255, 0, 1}), 0);
  EXPECT_EQ(b(ReduceOp::kMax, {0, 128, 0}), 1);
  EXPECT_EQ(b(ReduceOp::kSum, {0, 0}), 0);
  EXPECT_EQ(b(ReduceOp::kSum, {7}), 1);
}

TEST(ReduceKernels, MinAndMaxPropagateNanAndOrderZeros) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_TRUE(std::isnan(reduce_values<float>(DataType::kFloat32, op, {kNan, 1.0F})));
    EXPECT_TRUE(std::isnan(reduce_values<float>(DataType::kFloat32, op, {1.0F, kNan, 2.0F})));
    EXPECT_TRUE(std::isnan(
        reduce_values<double>(DataType::kFloat64, op, {1.0, std::nan(""), -INFINITY, 0.0})));
  }
  for (const auto& zeros : {std::vector{0.0F, -0.0F}, std::vector{-0.0F, 0.0F}}) {
    EXPECT_TRUE(std::signbit(reduce_values<float>(DataType::kFloat32, ReduceOp::kMin, zeros)));
    EXPECT_FALSE(std::signbit(reduce_values<float>(DataType::kFloat32, ReduceOp::kMax, zeros)));
  }
}

TEST(ReduceKernels, HalvesAccumulateInSinglePrecisionAndRoundOnce) {
  const auto f16 = [](std::vector<float> values, ReduceOp op, Scales scales = {}) {
    std::vector<std::uint16_t> halves;
    for (float value : values) halves.push_back(narrow_f16(value));
    return widen_f16(reduce_values<std::uint16_t>(DataType::kFloat16, op, halves, scales));
  };
  EXPECT_EQ(f16({40000, 40000}, ReduceOp::kAvg), 40000.0F);  // the sum is above 65504
  EXPECT_EQ(f16({40000, 40000}, ReduceOp::kSum), INFINITY);
  EXPECT_EQ(f16({40000, 40000}, ReduceOp::kSum, {.pre = 1.0, .post = 0.5}), 40000.0F);
  // 2048 + 1 rounds away each 1 if rounded at every step; the sum of all is exact here.
  EXPECT_EQ(f16({2048, 1, 1, 0}, ReduceOp::kSum), 2050.0F);
  EXPECT_EQ(f16({0x1p-24F, 0x1p-24F}, ReduceOp::kSum), 0x1p-23F);  // subnormals
}

TEST(ReduceKernels, ACallersFlushToZeroDoesNotMatter) {
  const unsigned saved = _mm_getcsr();
  constexpr unsigned kFlushAndDazRoundUp = 0x1f80 | 0x8000 | 0x0040 | 0x4000;
  _mm_setcsr(kFlushAndDazRoundUp);
  const float tiny = float_of_bits(1);
  const float sum = reduce_values<float>(DataType::kFloat32, ReduceOp::kSum, {tiny, tiny});
  const float nearest = reduce_values<float>(DataType::kFloat32, ReduceOp::kSum, {1.0F, 0x1p-25F});
  const unsigned after = _mm_getcsr();
  _mm_setcsr(saved);
  EXPECT_EQ(bits_of_float(sum), 2u);
  EXPECT_EQ(nearest, 1.0F);
  EXPECT_EQ(after & ~0x3fu, kFlushAndDazRoundUp) << "the caller's setting must come back";
}

TEST(ReduceKernels, TheOutputMayBeAnyOfTheInputs) {
  std::mt19937_64 random(kSeed + 4);
  for (std::size_t place = 0; place < 5; ++place) {
    std::vector<Bytes> inputs = random_inputs(DataType::kFloat16, 5, 5000, random);
    const ReductionOrder order = ReductionOrder::single_host(5);
    const Bytes expected =
        run_kernel(KernelVariant::kPortable, DataType::kFloat16, ReduceOp::kSum, order, inputs);
    std::vector<const std::byte*> pointers;
    for (const Bytes& input : inputs) pointers.push_back(input.data());
    const AlignedBytes scratch = allocate_aligned(reduce_scratch_bytes(order.stack_depth()));
    reduce_kernel(DataType::kFloat16, ReduceOp::kSum)
        .reduce({.steps = order.steps().data(),
                 .step_count = order.steps().size(),
                 .stack_depth = order.stack_depth(),
                 .inputs = pointers.data(),
                 .output = inputs[place].data(),
                 .count = 5000,
                 .scale = {.contributors = 5},
                 .scratch = scratch.get()});
    EXPECT_TRUE(inputs[place] == expected) << place;
  }
}

}  // namespace
}  // namespace kolo::internal
