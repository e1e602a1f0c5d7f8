// Every collective of tensors in device memory gives what it gives for tensors in host memory: by
// NCCL where each rank has its own device, else staged. Numbers are small integers, so that any
// order of additions gives the same bits.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "ops/half.h"
#include "tests/gpu/gpu.h"
#include "tests/unit/training/ranks.h"

namespace {

using gpu_test::DeviceArray;
using gpu_test::Stream;
using training_test::on_ranks;

constexpr int kRanks = 3;

struct Case {
  kolo_dtype dtype;
  std::size_t bytes;
  const char* name;
};
constexpr Case kCases[] = {
    {KOLO_INT8, 1, "int8"},         {KOLO_UINT8, 1, "uint8"},     {KOLO_INT32, 4, "int32"},
    {KOLO_UINT32, 4, "uint32"},     {KOLO_INT64, 8, "int64"},     {KOLO_UINT64, 8, "uint64"},
    {KOLO_FLOAT16, 2, "float16"},   {KOLO_FLOAT32, 4, "float32"}, {KOLO_FLOAT64, 8, "float64"},
    {KOLO_BFLOAT16, 2, "bfloat16"}, {KOLO_INT16, 2, "int16"},     {KOLO_UINT16, 2, "uint16"},
    {KOLO_BOOL, 1, "bool"},
};

void put(const Case& of, std::size_t i, int value, std::byte* out) {
  const auto write = [&](auto number) { std::memcpy(out + i * of.bytes, &number, of.bytes); };
  switch (of.dtype) {
    case KOLO_FLOAT16: return write(kolo::internal::narrow_f16(static_cast<float>(value)));
    case KOLO_BFLOAT16: return write(kolo::internal::narrow_bf16(static_cast<float>(value)));
    case KOLO_FLOAT32: return write(static_cast<float>(value));
    case KOLO_FLOAT64: return write(static_cast<double>(value));
    case KOLO_BOOL: return write(static_cast<std::uint8_t>(value % 2));
    default: return write(static_cast<std::int64_t>(value));  // the low bytes
  }
}

std::vector<std::byte> numbers(const Case& of, std::size_t count, int rank) {
  std::vector<std::byte> bytes(count * of.bytes);
  for (std::size_t i = 0; i < count; ++i) {
    put(of, i, 1 + (static_cast<int>(i) * 7 + rank * 3) % 5, bytes.data());
  }
  return bytes;
}

void must(kolo_status status) { EXPECT_EQ(status, KOLO_OK) << kolo_last_error(); }

// One collective: with buffers of `input` and `output` elements.
struct Collective {
  const char* name;
  std::size_t input;
  std::size_t output;
  kolo_status (*call)(kolo_context*, const void*, void*, const Case&, const kolo_options*,
                      kolo_request*);
};

constexpr std::size_t kCount = 1037;

kolo_op op_of(const Case& of) { return of.dtype == KOLO_BOOL ? KOLO_MAX : KOLO_SUM; }

const Collective kCollectives[] = {
    {"allreduce", kCount, kCount,
     [](kolo_context* context, const void* in, void* out, const Case& of,
        const kolo_options* options, kolo_request* request) {
       return kolo_allreduce(context, in, out, kCount, of.dtype, op_of(of), options, request);
     }},
    {"max", kCount, kCount,
     [](kolo_context* context, const void* in, void* out, const Case& of,
        const kolo_options* options, kolo_request* request) {
       return kolo_allreduce(context, in, out, kCount, of.dtype, KOLO_MAX, options, request);
     }},
    {"reduce_scatter", kRanks* kCount, kCount,
     [](kolo_context* context, const void* in, void* out, const Case& of,
        const kolo_options* options, kolo_request* request) {
       return kolo_reduce_scatter(context, in, out, kCount, of.dtype, op_of(of), options, request);
     }},
    {"allgather", kCount, kRanks* kCount,
     [](kolo_context* context, const void* in, void* out, const Case& of,
        const kolo_options* options, kolo_request* request) {
       return kolo_allgather(context, in, out, kCount, of.dtype, options, request);
     }},
    {"alltoall", kRanks* kCount, kRanks* kCount,
     [](kolo_context* context, const void* in, void* out, const Case& of,
        const kolo_options* options, kolo_request* request) {
       return kolo_alltoall(context, in, out, kCount, of.dtype, options, request);
     }},
    {"broadcast", kCount, kCount,
     [](kolo_context* context, const void* in, void* out, const Case& of,
        const kolo_options* options, kolo_request* request) {
       return kolo_broadcast(context, in, out, kCount, of.dtype, 1, options, request);
     }},
};

int device_of(const kolo::Context& context) { return context.rank() % gpu_test::device_count(); }

void compare(kolo::Context& context, const Collective& collective, const Case& of) {
  const int device = device_of(context);
  const std::vector<std::byte> input = numbers(of, collective.input, context.rank());
  std::vector<std::byte> expected(collective.output * of.bytes);
  const std::string name = std::string(collective.name) + "." + of.name;
  kolo_options options = KOLO_OPTIONS_INIT;
  const std::string host_name = name + ".host";
  options.name = host_name.c_str();
  must(collective.call(context.handle(), input.data(), expected.data(), of, &options, nullptr));

  DeviceArray<std::byte> in(device, input);
  DeviceArray<std::byte> out(device, expected.size());
  const Stream stream(device);
  options.name = name.c_str();
  for (int round = 0; round < 3; ++round) {  // the later ones are known
    kolo_request request = KOLO_REQUEST_NULL;
    options.stream = stream.get();
    must(collective.call(context.handle(), in.get(), out.get(), of, &options, &request));
    must(kolo_stream_wait(context.handle(), request, stream.get(), KOLO_FOREVER));
    EXPECT_EQ(out.read(stream.get()), expected) << name << " by a stream's wait, round " << round;
    must(kolo_wait(context.handle(), &request, KOLO_FOREVER));
  }
  must(collective.call(context.handle(), in.get(), out.get(), of, &options, nullptr));
  EXPECT_EQ(out.read(stream.get()), expected) << name << " as NCCL's own calls";
}

class Collectives : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Collectives, OfDeviceMemoryGiveWhatThoseOfHostMemoryGive) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    for (const Collective& collective : kCollectives) {
      compare(context, collective, kCases[GetParam()]);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Of, Collectives, ::testing::Range<std::size_t>(0, std::size(kCases)),
                         [](const auto& one) { return std::string(kCases[one.param].name); });

TEST(Shapes, UnevenBlocks) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    const auto rank = static_cast<std::size_t>(context.rank());
    const std::vector<std::size_t> counts = {5, 0, 300};
    const std::size_t all = 305;
    std::vector<float> mine(counts[rank], static_cast<float>(rank + 1));
    DeviceArray<float> in(device, mine);
    DeviceArray<float> out(device, all);
    kolo_options options = KOLO_OPTIONS_INIT;
    options.device = device;
    options.recv_counts = counts.data();
    options.name = "gathered";
    must(kolo_allgather(context.handle(), in.get(), out.get(), counts[rank], KOLO_FLOAT32, &options,
                        nullptr));
    std::vector<float> expected(5, 1.0F);
    expected.resize(all, 3.0F);
    EXPECT_EQ(out.read(), expected);

    DeviceArray<float> whole(device, expected);
    DeviceArray<float> part(device, counts[rank]);
    options.name = "scattered";
    must(kolo_reduce_scatter(context.handle(), whole.get(), part.get(), counts[rank], KOLO_FLOAT32,
                             KOLO_SUM, &options, nullptr));
    EXPECT_EQ(part.read(),
              std::vector<float>(counts[rank], rank == 0 ? 1.0F * kRanks : 3.0F * kRanks));
  });
}

TEST(Shapes, UnevenAllToAll) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    const auto rank = static_cast<std::size_t>(context.rank());
    std::vector<std::size_t> sends;
    std::vector<std::size_t> receives;
    std::vector<std::int32_t> input;
    std::vector<std::int32_t> expected;
    for (std::size_t peer = 0; peer < kRanks; ++peer) {
      sends.push_back(10 * rank + peer);
      receives.push_back(10 * peer + rank);
      input.insert(input.end(), sends.back(), static_cast<std::int32_t>(100 * rank + peer));
      expected.insert(expected.end(), receives.back(),
                      static_cast<std::int32_t>(100 * peer + rank));
    }
    DeviceArray<std::int32_t> in(device, input);
    DeviceArray<std::int32_t> out(device, expected.size());
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = "x";
    options.device = device;
    options.send_counts = sends.data();
    options.recv_counts = receives.data();
    must(kolo_alltoall(context.handle(), in.get(), out.get(), input.size(), KOLO_INT32, &options,
                       nullptr));
    EXPECT_EQ(out.read(), expected);
  });
}

TEST(Scales, AreAppliedOnceEach) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    for (const kolo_op op : {KOLO_SUM, KOLO_AVG, KOLO_MAX}) {
      DeviceArray<float> data(device, std::vector<float>(100, 6.0F));
      kolo_options options = KOLO_OPTIONS_INIT;
      const std::string name = "scaled." + std::to_string(op);
      options.name = name.c_str();
      options.prescale = 0.5;
      options.postscale = 4.0;
      must(kolo_allreduce(context.handle(), data.get(), data.get(), 100, KOLO_FLOAT32, op, &options,
                          nullptr));
      EXPECT_EQ(data.read(), std::vector<float>(100, op == KOLO_SUM ? 36.0F : 12.0F));
    }
  });
}

TEST(Groups, MixSizesAndStreams) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    const Stream one(device);
    const Stream other(device);
    constexpr int kMembers = 40;
    for (int round = 0; round < 3; ++round) {
      std::vector<DeviceArray<float>> tensors;
      for (int i = 0; i < kMembers; ++i) {
        tensors.emplace_back(device, std::vector<float>(static_cast<std::size_t>(1 + i * i * 97),
                                                        static_cast<float>(i + context.rank())));
      }
      must(kolo_group_begin(context.handle(), "G"));
      for (int i = 0; i < kMembers; ++i) {
        kolo_options options = KOLO_OPTIONS_INIT;
        const std::string name = "t" + std::to_string(i);
        options.name = name.c_str();
        options.stream = i % 2 == 0 ? one.get() : other.get();
        DeviceArray<float>& tensor = tensors[static_cast<std::size_t>(i)];
        must(kolo_allreduce(context.handle(), tensor.get(), tensor.get(), tensor.count(),
                            KOLO_FLOAT32, KOLO_SUM, &options, nullptr));
      }
      kolo_request request = KOLO_REQUEST_NULL;
      must(kolo_group_end(context.handle(), &request));
      must(kolo_stream_wait(context.handle(), request, one.get(), KOLO_FOREVER));
      for (int i = 0; i < kMembers; ++i) {
        const DeviceArray<float>& tensor = tensors[static_cast<std::size_t>(i)];
        EXPECT_EQ(tensor.read(one.get()),
                  std::vector<float>(tensor.count(), static_cast<float>(3 * i + 3)))
            << i;
      }
      must(kolo_wait(context.handle(), &request, KOLO_FOREVER));
    }
  });
}

TEST(Persistent, StartsAgainAndAgain) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    const Stream stream(device);
    DeviceArray<double> data(device, 1000);
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = "w";
    options.persistent = 1;
    options.stream = stream.get();
    kolo_request request = KOLO_REQUEST_NULL;
    must(kolo_allreduce(context.handle(), data.get(), data.get(), 1000, KOLO_FLOAT64, KOLO_SUM,
                        &options, &request));
    for (int round = 0; round < 5; ++round) {
      const std::vector<double> values(1000, round + context.rank());
      data.put(values, stream.get());
      must(kolo_start(context.handle(), &request, 1));
      must(kolo_stream_wait(context.handle(), request, stream.get(), KOLO_FOREVER));
      EXPECT_EQ(data.read(stream.get()), std::vector<double>(1000, 3.0 * round + 3));
      must(kolo_wait(context.handle(), &request, KOLO_FOREVER));
    }
    must(kolo_request_free(context.handle(), &request));
  });
}

TEST(Mixed, SomeRanksHaveItInHostMemory) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    for (const std::size_t count : {std::size_t{3}, std::size_t{5000}, std::size_t{3'000'000}}) {
      const std::vector<float> values(count, 1.5F);
      std::vector<float> host = values;
      DeviceArray<float> data(device, values);
      const bool on_host = context.rank() == 1;
      kolo_options options = KOLO_OPTIONS_INIT;
      const std::string name = "mixed." + std::to_string(count);
      options.name = name.c_str();
      for (int round = 0; round < 2; ++round) {
        void* const buffer = on_host ? static_cast<void*>(host.data()) : data.get();
        must(kolo_allreduce(context.handle(), buffer, buffer, count, KOLO_FLOAT32, KOLO_SUM,
                            &options, nullptr));
      }
      EXPECT_EQ(on_host ? host : data.read(), std::vector<float>(count, 1.5F * 9));
    }
  });
}

TEST(Mixed, AStreamsWaitForHostMemoryIsTheHosts) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    const Stream stream(device);
    std::vector<float> alone(5000, 1.0F);
    std::vector<float> member(100, 2.0F);
    DeviceArray<float> other(device, std::vector<float>(100, 3.0F));
    kolo_options options = KOLO_OPTIONS_INIT;
    kolo_request request = KOLO_REQUEST_NULL;
    options.name = "alone";
    must(kolo_allreduce(context.handle(), alone.data(), alone.data(), alone.size(), KOLO_FLOAT32,
                        KOLO_SUM, &options, &request));
    must(kolo_stream_wait(context.handle(), request, stream.get(), KOLO_FOREVER));
    EXPECT_EQ(alone, std::vector<float>(5000, 3.0F));
    must(kolo_wait(context.handle(), &request, KOLO_FOREVER));

    must(kolo_group_begin(context.handle(), "G"));
    options.name = "host";
    must(kolo_allreduce(context.handle(), member.data(), member.data(), member.size(), KOLO_FLOAT32,
                        KOLO_SUM, &options, nullptr));
    options.name = "device";
    options.stream = stream.get();
    must(kolo_allreduce(context.handle(), other.get(), other.get(), other.count(), KOLO_FLOAT32,
                        KOLO_SUM, &options, nullptr));
    must(kolo_group_end(context.handle(), &request));
    must(kolo_stream_wait(context.handle(), request, stream.get(), KOLO_FOREVER));
    EXPECT_EQ(member, std::vector<float>(100, 6.0F));
    EXPECT_EQ(other.read(stream.get()), std::vector<float>(100, 9.0F));
    must(kolo_wait(context.handle(), &request, KOLO_FOREVER));
  });
}

TEST(Join, ADeviceTensorGoesOnWithoutTheRankThatHasJoined) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    if (context.rank() != 2) {
      DeviceArray<float> data(device, std::vector<float>(777, 2.0F));
      kolo_options options = KOLO_OPTIONS_INIT;
      kolo_result result{};
      options.name = "j";
      options.result = &result;
      must(kolo_allreduce(context.handle(), data.get(), data.get(), 777, KOLO_FLOAT32, KOLO_AVG,
                          &options, nullptr));
      EXPECT_EQ(data.read(), std::vector<float>(777, 2.0F));
      EXPECT_EQ(result.participants, 2);
      EXPECT_EQ(result.nonfinite, 0);
    }
    must(kolo_join(context.handle(), nullptr, nullptr, nullptr));
  });
}

TEST(Names, AHostMayRunAheadOfItsDevice) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    const Stream stream(device);
    constexpr int kTimes = 30;
    double expected = 1;
    for (int i = 0; i < kTimes; ++i) expected *= kRanks;
    kolo_options options = KOLO_OPTIONS_INIT;
    options.stream = stream.get();
    DeviceArray<double> like_nccl(device, std::vector<double>(100, 1.0));
    options.name = "called";
    for (int i = 0; i < kTimes; ++i) {
      must(kolo_allreduce(context.handle(), like_nccl.get(), like_nccl.get(), 100, KOLO_FLOAT64,
                          KOLO_SUM, &options, nullptr));
    }
    EXPECT_EQ(like_nccl.read(stream.get()), std::vector<double>(100, expected));

    DeviceArray<double> requested(device, std::vector<double>(100, 1.0));
    for (int i = 0; i < kTimes; ++i) {
      kolo_request request = KOLO_REQUEST_NULL;
      must(kolo_group_begin(context.handle(), "G"));
      options.name = "member";
      must(kolo_allreduce(context.handle(), requested.get(), requested.get(), 100, KOLO_FLOAT64,
                          KOLO_SUM, &options, nullptr));
      must(kolo_group_end(context.handle(), &request));
      must(kolo_stream_wait(context.handle(), request, stream.get(), KOLO_FOREVER));
      must(kolo_request_free(context.handle(), &request));
    }
    EXPECT_EQ(requested.read(stream.get()), std::vector<double>(100, expected));
  });
}

TEST(Memory, OfTheDeviceFromTheContext) {
  GPU_OR_SKIP();
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = device_of(context);
    void* memory = nullptr;
    must(kolo_alloc_device(context.handle(), device, 4096, &memory));
    const std::vector<std::int32_t> ones(1024, 1);
    std::vector<std::int32_t> back(1024);
    gpu_test::runtime()->cudaSetDevice(device);
    gpu_test::check(gpu_test::runtime()->cudaMemcpyAsync(
                        memory, ones.data(), 4096, gpu_test::cuda::kCopyHostToDevice, nullptr),
                    "copy");
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = "m";
    must(kolo_allreduce(context.handle(), memory, memory, 1024, KOLO_INT32, KOLO_SUM, &options,
                        nullptr));
    gpu_test::check(gpu_test::runtime()->cudaMemcpyAsync(
                        back.data(), memory, 4096, gpu_test::cuda::kCopyDeviceToHost, nullptr),
                    "copy");
    gpu_test::runtime()->cudaStreamSynchronize(nullptr);
    EXPECT_EQ(back, std::vector<std::int32_t>(1024, kRanks));
    // What one rank has from the context may be of another maker on the next.
    DeviceArray<std::int32_t> plain(device, back);
    void* const mixed = context.rank() == 0 ? memory : plain.get();
    options.name = "mixed";
    for (int round = 0; round < 2; ++round) {
      must(kolo_allreduce(context.handle(), mixed, mixed, 1024, KOLO_INT32, KOLO_SUM, &options,
                          nullptr));
    }
    if (context.rank() != 0) {
      EXPECT_EQ(plain.read(), std::vector<std::int32_t>(1024, kRanks * kRanks * kRanks));
    }
    must(kolo_free(context.handle(), memory));
    EXPECT_EQ(kolo_free(context.handle(), memory), KOLO_INVALID_ARGUMENT);
  });
}

}  // namespace
