// Operations on devices that are under way while others come and go: in host memory, of process
// sets that end.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/fakes.h"

namespace gpu_test {
namespace {

constexpr int kRanks = 2;

kolo_options on_stream(const Stream& stream, const char* name) {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = name;
  options.stream = stream.get();
  return options;
}

TEST(Beside, OperationsInHostMemoryEndWhileOnesOnADeviceAreUnderWay) {
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = context.rank();
    const Stream stream(device);
    DeviceArray<float> first(device, std::vector<float>(1000, 1.0F));
    DeviceArray<float> second(device, std::vector<float>(1000, 2.0F));
    std::vector<float> host(100, 1.0F);
    for (int round = 0; round < 10; ++round) {
      EXPECT_EQ(fakes().hold(stream.get()), 0);
      const kolo_options a = on_stream(stream, "a");
      const kolo_options b = on_stream(stream, "b");
      kolo_request requests[2] = {};
      must(kolo_allreduce(context.handle(), first.get(), first.get(), 1000, KOLO_FLOAT32, KOLO_MAX,
                          &a, &requests[0]));
      for (int i = 0; i < 8; ++i) {
        must(kolo_allreduce(context.handle(), host.data(), host.data(), host.size(), KOLO_FLOAT32,
                            KOLO_MAX, nullptr, nullptr));
        must(kolo_barrier(context.handle(), nullptr, nullptr));
      }
      must(kolo_allreduce(context.handle(), second.get(), second.get(), 1000, KOLO_FLOAT32,
                          KOLO_MAX, &b, &requests[1]));
      EXPECT_EQ(fakes().release(stream.get()), 0);
      EXPECT_EQ(kolo_wait_all(context.handle(), requests, 2, 20'000), KOLO_OK) << round;
    }
    EXPECT_EQ(first.read(stream.get()), std::vector<float>(1000, 1.0F));
    EXPECT_EQ(second.read(stream.get()), std::vector<float>(1000, 2.0F));
  });
  EXPECT_EQ(fakes().misuses(), 0);
}

TEST(Beside, ASetThatEndsTakesItsCommunicatorsAlong) {
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = context.rank();
    const Stream stream(device);
    DeviceArray<float> data(device, std::vector<float>(100, 1.0F));
    for (int round = 0; round < 5; ++round) {
      const std::int32_t ranks[] = {0, 1};
      std::int32_t set = 0;
      must(kolo_pset_create(context.handle(), ranks, 2, &set, nullptr, nullptr));
      kolo_options options = on_stream(stream, "x");
      options.pset = set;
      must(kolo_allreduce(context.handle(), data.get(), data.get(), 100, KOLO_FLOAT32, KOLO_MAX,
                          &options, nullptr));
      must(kolo_pset_destroy(context.handle(), set, nullptr, nullptr));
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    fakegpu_counts counts{};
    std::int64_t waits = 0;
    do {  // they go in the background; all look again, or none
      fakes().census(&counts);
      waits = counts.communicators > 0 && std::chrono::steady_clock::now() < deadline ? 1 : 0;
      must(kolo_allreduce(context.handle(), &waits, &waits, 1, KOLO_INT64, KOLO_MAX, nullptr,
                          nullptr));
    } while (waits > 0);
    fakes().census(&counts);
    EXPECT_EQ(counts.communicators, 0);
  });
}

TEST(Beside, MemoryThatIsAskedForWhileTheContextEndsIsNotLost) {
  for (int round = 0; round < 20; ++round) {
    kolo_context* context = nullptr;
    ASSERT_EQ(kolo_init(nullptr, &context), KOLO_OK) << kolo_last_error();
    void* memory = nullptr;
    must(kolo_alloc_device(context, 0, 1000, &memory));
    std::thread other([context, memory] {
      void* more = nullptr;
      static_cast<void>(kolo_alloc_device(context, 0, 1000, &more));
      static_cast<void>(kolo_free(context, memory));
    });
    must(kolo_shutdown(context));
    other.join();
  }
  fakegpu_counts counts{};
  fakes().census(&counts);
  EXPECT_EQ(counts.nccl_buffers + counts.device_buffers, 0);
}

}  // namespace
}  // namespace gpu_test
