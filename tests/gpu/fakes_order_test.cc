// What comes after what: the caller's streams before the operation, waiting streams after it, and
// the host never; callers' devices and captures stay as they are.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/fakes.h"

namespace gpu_test {
namespace {

constexpr int kRanks = 2;
constexpr int kByte = 0x3f;
constexpr std::size_t kCount = 1000;

float filled() {
  float value = 0;
  std::memset(&value, kByte, sizeof value);
  return value;
}

void fill(const DeviceArray<float>& data, cuda::StreamHandle stream) {
  check(runtime()->cudaMemsetAsync(data.get(), kByte, data.count() * sizeof(float), stream),
        "cudaMemsetAsync");
}

void copy(const DeviceArray<float>& to, const DeviceArray<float>& from, cuda::StreamHandle stream) {
  constexpr int kDeviceToDevice = 3;
  check(runtime()->cudaMemcpyAsync(to.get(), from.get(), from.count() * sizeof(float),
                                   kDeviceToDevice, stream),
        "cudaMemcpyAsync");
}

std::vector<float> twice() { return std::vector<float>(kCount, 2 * filled()); }

class CurrentDevice {
 public:
  CurrentDevice() { runtime()->cudaGetDevice(&device_); }
  ~CurrentDevice() {
    int now = -1;
    runtime()->cudaGetDevice(&now);
    EXPECT_EQ(now, device_) << "the caller's current device has changed";
  }

 private:
  int device_ = -1;
};

// The operation waits for the stream's work, the calls do not.
void hold_and_sum(kolo::Context& context, const std::string& name, cuda::StreamHandle stream) {
  const int device = context.rank();
  const DeviceArray<float> data(device, std::vector<float>(kCount, 0.0F));
  const DeviceArray<float> seen(device, std::vector<float>(kCount, 0.0F));
  const Stream other(device);
  EXPECT_EQ(fakes().hold(stream), 0);
  fill(data, stream);
  kolo_request request = KOLO_REQUEST_NULL;
  must(sum(context, name, data, stream, &request));
  const long waits = fakes().calls_of_this_thread("cudaStreamWaitEvent");
  must(kolo_stream_wait(context.handle(), request, other.get(), KOLO_FOREVER));
  EXPECT_EQ(fakes().calls_of_this_thread("cudaStreamWaitEvent"), waits + 1) << name;
  copy(seen, data, other.get());
  EXPECT_EQ(kolo_wait(context.handle(), &request, 50), KOLO_IN_PROGRESS) << name;
  EXPECT_EQ(fakes().release(stream), 0);
  must(kolo_wait(context.handle(), &request, KOLO_FOREVER));
  EXPECT_EQ(data.read(other.get()), twice()) << name;
  EXPECT_EQ(seen.read(other.get()), twice()) << name << ", on a stream that has waited";
}

TEST(Order, TheOperationWaitsForTheCallersStreamAndTheHostDoesNot) {
  on_ranks(kRanks, [](kolo::Context& context) {
    const Stream stream(context.rank());
    hold_and_sum(context, "created", stream.get());
    hold_and_sum(context, "created", stream.get());
    const auto special = [](std::uintptr_t number) {
      return reinterpret_cast<cuda::StreamHandle>(number);  // NOLINT: CUDA's own names of streams
    };
    runtime()->cudaSetDevice(context.rank());
    hold_and_sum(context, "default", nullptr);
    hold_and_sum(context, "legacy", special(1));
    hold_and_sum(context, "of the thread", special(2));
  });
}

// With a stream and no request, as NCCL's own calls.
TEST(Order, ACallOnAStreamReturnsBeforeTheDeviceIsDone) {
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = context.rank();
    const Stream stream(device);
    const DeviceArray<float> data(device, std::vector<float>(kCount, 0.0F));
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(fakes().hold(stream.get()), 0);
      fill(data, stream.get());
      must(sum(context, "own " + std::to_string(round), data, stream.get(), nullptr));
      EXPECT_EQ(fakes().release(stream.get()), 0);
      EXPECT_EQ(data.read(stream.get()), twice());
    }
  });
}

TEST(Order, OfAGroupsStreamsAll) {
  on_ranks(kRanks, [](kolo::Context& context) {
    const int device = context.rank();
    const Stream one(device);
    const Stream two(device);
    const DeviceArray<float> first(device, std::vector<float>(kCount, 0.0F));
    const DeviceArray<float> second(device, std::vector<float>(kCount, 0.0F));
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(fakes().hold(one.get()), 0);
      EXPECT_EQ(fakes().hold(two.get()), 0);
      fill(first, one.get());
      fill(second, two.get());
      kolo_request request = KOLO_REQUEST_NULL;
      must(kolo_group_begin(context.handle(), "G"));
      must(sum(context, "first", first, one.get(), nullptr));
      must(sum(context, "second", second, two.get(), nullptr));
      must(kolo_group_end(context.handle(), &request));
      must(kolo_stream_wait(context.handle(), request, one.get(), KOLO_FOREVER));
      EXPECT_EQ(fakes().release(one.get()), 0);
      EXPECT_EQ(kolo_wait(context.handle(), &request, 30), KOLO_IN_PROGRESS);
      EXPECT_EQ(fakes().release(two.get()), 0);
      EXPECT_EQ(first.read(one.get()), twice());
      EXPECT_EQ(second.read(one.get()), twice());
      must(kolo_wait(context.handle(), &request, KOLO_FOREVER));
    }
  });
}

TEST(Order, OneRankUsesSeveralDevicesAndItsCurrentOneStays) {
  on_ranks(kRanks, [](kolo::Context& context) {
    const int devices[] = {context.rank(), context.rank() + kRanks};
    const Stream streams[] = {Stream(devices[0]), Stream(devices[1])};
    const DeviceArray<float> data[] = {{devices[0], std::vector<float>(kCount, 1.0F)},
                                       {devices[1], std::vector<float>(kCount, 2.0F)}};
    for (int round = 0; round < 3; ++round) {
      for (const int current : {0, 3}) {
        runtime()->cudaSetDevice(current);
        const CurrentDevice stays;
        kolo_request requests[2] = {};
        for (const std::size_t i : {0, 1}) {
          must(sum(context, "on device " + std::to_string(i), data[i], streams[i].get(),
                   &requests[i]));
          must(kolo_stream_wait(context.handle(), requests[i], streams[i].get(), KOLO_FOREVER));
        }
        must(kolo_wait_all(context.handle(), requests, 2, KOLO_FOREVER));
      }
    }
    EXPECT_EQ(data[0].read(streams[0].get()), std::vector<float>(kCount, 64.0F));
    EXPECT_EQ(data[1].read(streams[1].get()), std::vector<float>(kCount, 128.0F));
  });
}

TEST(Order, AStreamOfAnotherDeviceIsRefused) {
  on_ranks(kRanks, [](kolo::Context& context) {
    const Stream wrong(3);
    const DeviceArray<float> data(context.rank(), std::vector<float>(kCount, 1.0F));
    kolo_request request = KOLO_REQUEST_NULL;
    EXPECT_EQ(sum(context, "wrong", data, wrong.get(), &request), KOLO_INVALID_ARGUMENT);
    EXPECT_EQ(request, KOLO_REQUEST_NULL);
  });
}

// ---- Capture ------------------------------------------------------------------------------------

constexpr int kGlobal = 0;

void end_capture(const Stream& stream) {
  void* graph = nullptr;
  check(fakes().end_capture(stream.get(), &graph), "the capture was spoilt: cudaStreamEndCapture");
  if (graph != nullptr) check(fakes().destroy_graph(graph), "cudaGraphDestroy");
}

TEST(Capture, OnTheStreamIsRefusedAndGoesOn) {
  on_ranks(kRanks, [](kolo::Context& context) {
    const Stream stream(context.rank());
    const Stream free(context.rank());
    const DeviceArray<float> data(context.rank(), std::vector<float>(kCount, 1.0F));
    kolo_request good = KOLO_REQUEST_NULL;
    must(sum(context, "good", data, free.get(), &good));
    check(fakes().begin_capture(stream.get(), 2), "cudaStreamBeginCapture");
    kolo_request request = KOLO_REQUEST_NULL;
    EXPECT_EQ(sum(context, "captured", data, stream.get(), &request), KOLO_INVALID_ARGUMENT);
    EXPECT_NE(std::string(kolo_last_error()).find("graph"), std::string::npos);
    EXPECT_EQ(sum(context, "captured", data, stream.get(), nullptr), KOLO_INVALID_ARGUMENT);
    EXPECT_EQ(kolo_stream_wait(context.handle(), good, stream.get(), KOLO_FOREVER),
              KOLO_INVALID_ARGUMENT);
    end_capture(stream);
    must(kolo_wait(context.handle(), &good, KOLO_FOREVER));
    EXPECT_EQ(data.read(free.get()), std::vector<float>(kCount, 2.0F));
  });
}

class CaptureElsewhere : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { setenv("KOLO_CUDA", GetParam(), 1); }
  void TearDown() override { unsetenv("KOLO_CUDA"); }
};

// In global mode no thread may make memory, wait or the like: all of kolo's beginnings fall into
// it.
TEST_P(CaptureElsewhere, IsNotSpoilt) {
  on_ranks(kRanks, [](kolo::Context& context) {
    const Stream captured(context.rank());
    const Stream stream(context.rank());
    const DeviceArray<float> small(context.rank(), std::vector<float>(kCount, 1.0F));
    const DeviceArray<float> large(context.rank(), std::vector<float>(300'000, 1.0F));
    context.barrier(kolo::Options().name("before"));
    if (context.rank() == 0) check(fakes().begin_capture(captured.get(), kGlobal), "begin");
    context.barrier(kolo::Options().name("begun"));
    for (int round = 0; round < 3; ++round) {
      const std::string number = std::to_string(round);
      must(sum(context, "another small " + number, small, stream.get(), nullptr));
      must(sum(context, "large " + number, large, stream.get(), nullptr));
      kolo_request request = KOLO_REQUEST_NULL;
      must(sum(context, "small", small, stream.get(), &request));
      must(kolo_wait(context.handle(), &request, KOLO_FOREVER));
    }
    context.barrier(kolo::Options().name("over"));
    if (context.rank() == 0) end_capture(captured);
    context.barrier(kolo::Options().name("ended"));
    EXPECT_EQ(small.read(stream.get()), std::vector<float>(kCount, 64.0F));
    EXPECT_EQ(large.read(stream.get()), std::vector<float>(300'000, 8.0F));
  });
}

INSTANTIATE_TEST_SUITE_P(Of, CaptureElsewhere, ::testing::Values("auto", "staged"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace gpu_test
