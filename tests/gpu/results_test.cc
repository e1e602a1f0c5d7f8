// What kolo tells of results in device memory, and results of its own making there: as for tensors
// in host memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/half.h"
#include "tests/gpu/gpu.h"
#include "tests/unit/training/ranks.h"

namespace {

using gpu_test::DeviceArray;
using gpu_test::Stream;
using testing::AnyOf;
using training_test::on_ranks;

constexpr int kRanks = 3;
constexpr std::size_t kCount = 4711;  // more than a tile of the kernels

void must(kolo_status status) { EXPECT_EQ(status, KOLO_OK) << kolo_last_error(); }

int device_of(const kolo::Context& context) { return context.rank() % gpu_test::device_count(); }

struct Case {
  kolo_dtype dtype;
  std::size_t bytes;
  const char* name;
};
constexpr Case kCases[] = {
    {KOLO_FLOAT16, 2, "float16"},
    {KOLO_BFLOAT16, 2, "bfloat16"},
    {KOLO_FLOAT32, 4, "float32"},
    {KOLO_FLOAT64, 8, "float64"},
    {KOLO_FLOAT8_E4M3, 1, "float8_e4m3"},
    {KOLO_FLOAT8_E5M2, 1, "float8_e5m2"},
    {KOLO_INT32, 4, "int32"},
};

void put(const Case& of, std::size_t i, double value, std::vector<std::byte>& out) {
  const auto write = [&](auto number) {
    std::memcpy(out.data() + i * of.bytes, &number, of.bytes);
  };
  switch (of.dtype) {
    case KOLO_FLOAT16: return write(kolo::internal::narrow_f16(static_cast<float>(value)));
    case KOLO_BFLOAT16: return write(kolo::internal::narrow_bf16(static_cast<float>(value)));
    case KOLO_FLOAT32: return write(static_cast<float>(value));
    case KOLO_FLOAT64: return write(value);
    default: return write(std::uint32_t{0xffffffff});  // a NaN, were it a float
  }
}

// Few of them are finite nowhere, some on one rank only.
std::vector<std::byte> numbers(const Case& of, std::size_t count, int rank) {
  std::vector<std::byte> bytes(count * of.bytes);
  for (std::size_t i = 0; i < count; ++i) {
    double value = static_cast<double>(1 + i % 5);
    if (i % 97 == static_cast<std::size_t>(rank)) value = NAN;
    if (i % 89 == 3) value = i % 2 == 0 ? INFINITY : -INFINITY;
    put(of, i, value, bytes);
  }
  return bytes;
}

enum class Kind { kAllreduce, kReduceScatter, kAllgather, kAlltoall, kBroadcast };
constexpr std::array kKinds = {Kind::kAllreduce, Kind::kReduceScatter, Kind::kAllgather,
                               Kind::kAlltoall, Kind::kBroadcast};

kolo_status call(kolo::Context& context, Kind kind, const void* in, void* out, const Case& of,
                 const kolo_options& options) {
  kolo_context* const kolo = context.handle();
  const std::size_t n = kCount;
  switch (kind) {
    case Kind::kAllreduce:
      return kolo_allreduce(kolo, in, out, n, of.dtype, KOLO_SUM, &options, nullptr);
    case Kind::kReduceScatter:
      return kolo_reduce_scatter(kolo, in, out, n, of.dtype, KOLO_SUM, &options, nullptr);
    case Kind::kAllgather: return kolo_allgather(kolo, in, out, n, of.dtype, &options, nullptr);
    case Kind::kAlltoall: return kolo_alltoall(kolo, in, out, n, of.dtype, &options, nullptr);
    case Kind::kBroadcast: return kolo_broadcast(kolo, in, out, n, of.dtype, 1, &options, nullptr);
  }
  return KOLO_INTERNAL;
}

// Without kernels nobody counts what goes by NCCL.
testing::Matcher<std::int64_t> counted(std::int64_t expected) {
  if (!gpu_test::has_kernels()) return AnyOf(expected, -1);
  return expected;
}

class Nonfinite : public testing::TestWithParam<std::size_t> {};

TEST_P(Nonfinite, AreCountedAsInHostMemory) {
  GPU_OR_SKIP();
  const Case& of = kCases[GetParam()];
  const bool is_float8 = of.bytes == 1;
  on_ranks(kRanks, [&](kolo::Context& context) {
    for (const Kind kind : kKinds) {
      const bool reduces = kind == Kind::kAllreduce || kind == Kind::kReduceScatter;
      if (is_float8 && reduces) continue;
      const bool of_all = kind == Kind::kReduceScatter || kind == Kind::kAlltoall;
      const bool to_all = kind == Kind::kAllgather || kind == Kind::kAlltoall;
      const std::size_t inputs = (of_all ? kRanks : 1) * kCount;
      const std::size_t outputs = (to_all ? kRanks : 1) * kCount;
      const std::vector<std::byte> input = numbers(of, inputs, context.rank());
      std::vector<std::byte> output(outputs * of.bytes);
      const std::string name = std::string(of.name) + "." + std::to_string(static_cast<int>(kind));
      const std::string host_name = name + ".host";
      kolo_result host{};
      kolo_options options = KOLO_OPTIONS_INIT;
      options.name = host_name.c_str();
      options.result = &host;
      must(call(context, kind, input.data(), output.data(), of, options));
      if (!is_float8 && of.dtype != KOLO_INT32) {
        EXPECT_GT(host.nonfinite, 0) << name;
      }

      const int device = device_of(context);
      DeviceArray<std::byte> in(device, input);
      DeviceArray<std::byte> out(device, output.size());
      options.name = name.c_str();
      options.device = device;
      for (int round = 0; round < 2; ++round) {
        kolo_result result{-7, 0, -7};
        // Those that do not ask are the others' affair.
        options.result = round == 0 || context.rank() == 1 ? &result : nullptr;
        must(call(context, kind, in.get(), out.get(), of, options));
        if (options.result == nullptr) continue;
        EXPECT_THAT(result.nonfinite, counted(host.nonfinite)) << name << ", round " << round;
        EXPECT_EQ(result.participants, kRanks);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Of, Nonfinite, testing::Range<std::size_t>(0, std::size(kCases)),
                         [](const auto& one) { return std::string(kCases[one.param].name); });

TEST(NonfiniteGroup, EachMemberHasItsOwnCount) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    constexpr std::size_t kMembers = 150;  // more than one launch of the kernels
    for (int round = 0; round < 3; ++round) {
      std::vector<DeviceArray<float>> tensors;
      std::vector<kolo_result> results(kMembers, kolo_result{0, 0, -7});
      must(kolo_group_begin(context.handle(), "G"));
      for (std::size_t i = 0; i < kMembers; ++i) {
        std::vector<float> values(1 + i * 31 % 6000, 1.0F);
        for (std::size_t k = 0; k < i % 4 && k < values.size(); ++k) values[k] = NAN;
        tensors.emplace_back(device, values);
        kolo_options options = KOLO_OPTIONS_INIT;
        const std::string name = "t" + std::to_string(i);
        options.name = name.c_str();
        options.device = device;
        if (i % 3 != 2) options.result = &results[i];
        DeviceArray<float>& tensor = tensors.back();
        must(kolo_allreduce(context.handle(), tensor.get(), tensor.get(), tensor.count(),
                            KOLO_FLOAT32, KOLO_SUM, &options, nullptr));
      }
      must(kolo_group_end(context.handle(), nullptr));
      for (std::size_t i = 0; i < kMembers; ++i) {
        const auto expected = static_cast<std::int64_t>(std::min(i % 4, tensors[i].count()));
        if (i % 3 != 2) {
          EXPECT_THAT(results[i].nonfinite, counted(expected)) << i;
        } else {
          EXPECT_EQ(results[i].nonfinite, -7) << i;
        }
      }
    }
  });
}

TEST(NonfiniteBroadcasts, OfSeveralTypesAtOnce) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    std::array<kolo_result, std::size(kCases)> results{};
    std::vector<DeviceArray<std::byte>> buffers;
    must(kolo_group_begin(context.handle(), "G"));
    for (std::size_t i = 0; i < std::size(kCases); ++i) {
      buffers.emplace_back(device, numbers(kCases[i], 500, context.rank()));
      kolo_options options = KOLO_OPTIONS_INIT;
      options.name = kCases[i].name;
      options.device = device;
      options.result = &results[i];
      must(kolo_broadcast(context.handle(), buffers.back().get(), buffers.back().get(), 500,
                          kCases[i].dtype, 0, &options, nullptr));
    }
    must(kolo_group_end(context.handle(), nullptr));
    for (std::size_t i = 0; i < std::size(kCases); ++i) {
      const bool is_counted = kCases[i].bytes > 1 && kCases[i].dtype != KOLO_INT32;
      // 0, 97, 194, ... and 3, 92, 181, ..., which do not meet.
      EXPECT_THAT(results[i].nonfinite, counted(is_counted ? 12 : 0)) << kCases[i].name;
    }
  });
}

TEST(NonfiniteLarge, InMoreThanOnePart) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    std::vector<float> values(3'000'000, 1.0F);
    for (std::size_t i = 0; i < values.size(); i += 1000) values[i] = NAN;
    DeviceArray<float> data(device, values);
    kolo_result result{};
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = "large";
    options.device = device;
    options.result = &result;
    must(kolo_allreduce(context.handle(), data.get(), data.get(), values.size(), KOLO_FLOAT32,
                        KOLO_SUM, &options, nullptr));
    EXPECT_THAT(result.nonfinite, counted(3000));
  });
}

TEST(NonfinitePersistent, IsThatOfEachStart) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    const Stream stream(device);
    DeviceArray<double> data(device, 100);
    kolo_result result{};
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = "kept";
    options.persistent = 1;
    options.stream = stream.get();
    options.result = &result;
    kolo_request request = KOLO_REQUEST_NULL;
    must(kolo_allreduce(context.handle(), data.get(), data.get(), 100, KOLO_FLOAT64, KOLO_SUM,
                        &options, &request));
    for (std::size_t round = 0; round < 5; ++round) {
      std::vector<double> values(100, 1.0);
      for (std::size_t i = 0; i < round; ++i) values[i * 7] = INFINITY;
      data.put(values, stream.get());
      must(kolo_start(context.handle(), &request, 1));
      must(kolo_wait(context.handle(), &request, KOLO_FOREVER));
      EXPECT_THAT(result.nonfinite, counted(static_cast<std::int64_t>(round)));
    }
    must(kolo_request_free(context.handle(), &request));
  });
}

// ---- Outputs that the library allocates ---------------------------------------------------------

struct Output {
  std::int32_t* memory = nullptr;
  std::size_t count = 0;
  const std::size_t* counts = nullptr;
};

Output output_of(kolo::Context& context, kolo_request request) {
  Output output;
  void* memory = nullptr;
  must(kolo_request_output(context.handle(), request, &memory, &output.count, &output.counts));
  output.memory = static_cast<std::int32_t*>(memory);
  return output;
}

std::vector<std::int32_t> read(const Output& output, bool on_host) {
  std::vector<std::int32_t> values(output.count);
  if (on_host) return {output.memory, output.memory + output.count};
  gpu_test::check(gpu_test::runtime()->cudaMemcpyAsync(values.data(), output.memory,
                                                       output.count * sizeof(std::int32_t),
                                                       gpu_test::cuda::kCopyDeviceToHost, nullptr),
                  "copy");
  gpu_test::check(gpu_test::runtime()->cudaStreamSynchronize(nullptr), "synchronize");
  return values;
}

// `host_rank` has its input in host memory, and gets its output there.
void gather(kolo::Context& context, const std::string& name, std::size_t most, int host_rank) {
  const int device = device_of(context);
  const int rank = context.rank();
  const bool on_host = rank == host_rank;
  std::vector<std::size_t> counts;
  std::vector<std::int32_t> expected;
  for (int giver = 0; giver < kRanks; ++giver) {
    counts.push_back(most * static_cast<std::size_t>(giver));  // the first gives nothing
    expected.insert(expected.end(), counts.back(), 100 + giver);
  }
  const std::size_t mine = counts[static_cast<std::size_t>(rank)];
  const std::vector<std::int32_t> values(mine, 100 + rank);
  DeviceArray<std::int32_t> input(device, values);
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = name.c_str();
  options.allocate = 1;
  options.device = on_host ? KOLO_DEVICE_HOST : device;
  const void* const from = on_host ? static_cast<const void*>(values.data()) : input.get();
  kolo_request request = KOLO_REQUEST_NULL;
  must(kolo_allgather(context.handle(), from, nullptr, mine, KOLO_INT32, &options, &request));
  must(kolo_wait(context.handle(), &request, KOLO_FOREVER));
  const Output output = output_of(context, request);
  EXPECT_NE(output.memory, nullptr);
  EXPECT_EQ(std::vector<std::size_t>(output.counts, output.counts + kRanks), counts);
  EXPECT_EQ(read(output, on_host), expected) << name;
  must(kolo_request_free(context.handle(), &request));
}

TEST(Allocated, AllgatherOfWhatEachRankLikes) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    gpu_test::runtime()->cudaSetDevice(device_of(context));
    for (int round = 0; round < 3; ++round) {
      gather(context, "some", 1000 + 7 * static_cast<std::size_t>(round), -1);
      gather(context, "mixed", 50, 1);
      gather(context, "nothing", 0, -1);
    }
  });
}

TEST(Allocated, AlltoallOfWhatComes) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    gpu_test::runtime()->cudaSetDevice(device);
    const auto rank = static_cast<std::size_t>(context.rank());
    std::vector<std::size_t> sends;
    std::vector<std::size_t> receives;
    std::vector<std::int32_t> values;
    std::vector<std::int32_t> expected;
    for (std::size_t peer = 0; peer < kRanks; ++peer) {
      sends.push_back(300 * rank + peer);
      receives.push_back(300 * peer + rank);
      values.insert(values.end(), sends.back(), static_cast<std::int32_t>(100 * rank + peer));
      expected.insert(expected.end(), receives.back(),
                      static_cast<std::int32_t>(100 * peer + rank));
    }
    DeviceArray<std::int32_t> input(device, values);
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = "dealt";
    options.allocate = 1;
    options.device = device;
    options.send_counts = sends.data();
    kolo_request request = KOLO_REQUEST_NULL;
    must(kolo_alltoall(context.handle(), input.get(), nullptr, values.size(), KOLO_INT32, &options,
                       &request));
    must(kolo_wait(context.handle(), &request, KOLO_FOREVER));
    const Output output = output_of(context, request);
    EXPECT_EQ(std::vector<std::size_t>(output.counts, output.counts + kRanks), receives);
    EXPECT_EQ(read(output, false), expected);
    must(kolo_request_free(context.handle(), &request));
  });
}

// One that its caller gives up frees its output when it is over; one that lives on is freed by the
// context's end. The census of the fakes says whether any is left.
TEST(Allocated, GivenUpAndForgotten) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    DeviceArray<std::int32_t> input(device, std::vector<std::int32_t>(1000, 1));
    for (int i = 0; i < 20; ++i) {
      kolo_options options = KOLO_OPTIONS_INIT;
      const std::string name = "given up " + std::to_string(i);
      options.name = name.c_str();
      options.allocate = 1;
      options.device = device;
      kolo_request request = KOLO_REQUEST_NULL;
      must(kolo_allgather(context.handle(), input.get(), nullptr, 1000, KOLO_INT32, &options,
                          &request));
      if (i % 2 == 0) {
        must(kolo_request_free(context.handle(), &request));
      } else {
        must(kolo_wait(context.handle(), &request, KOLO_FOREVER));
      }
    }
  });
}

}  // namespace
