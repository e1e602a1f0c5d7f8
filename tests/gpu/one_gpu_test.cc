// What one GPU is enough for: a job of one rank, order of streams and events while the device has
// much to do, and kolo_abort() during queued work. Nothing is told by time: every queue is long,
// and every result says what came before it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "ops/cuda/handles.h"
#include "tests/gpu/gpu.h"
#include "tests/unit/training/ranks.h"

namespace {

using gpu_test::check;
using gpu_test::DeviceArray;
using gpu_test::Stream;
using gpu_test::cuda::Event;
using gpu_test::cuda::PinnedBuffer;
using training_test::on_ranks;

void must(kolo_status status) { EXPECT_EQ(status, KOLO_OK) << kolo_last_error(); }

kolo_options named(const std::string& name, const Stream& stream) {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = name.c_str();
  options.stream = stream.get();
  return options;
}

// The options only refer to the name.
kolo_options named(std::string&& name, const Stream& stream) = delete;

// Work of the device that takes it a while, and the host nothing.
class Load {
 public:
  explicit Load(int device) : memory_(device, kBytes) {}
  void queue(const Stream& stream, int times = 1) const {
    for (int i = 0; i < times; ++i) {
      check(gpu_test::runtime()->cudaMemsetAsync(memory_.get(), i, kBytes, stream.get()), "memset");
    }
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{16} << 20;
  DeviceArray<char> memory_;
};

void pass(const Stream& from, const Stream& to) {
  const auto event = Event::create(*gpu_test::runtime());
  ASSERT_TRUE(event.is_ok()) << event.status().text();
  check(gpu_test::runtime()->cudaEventRecord(event->get(), from.get()), "cudaEventRecord");
  check(gpu_test::runtime()->cudaStreamWaitEvent(to.get(), event->get(), 0), "cudaStreamWaitEvent");
}

TEST(OneRank, AllCollectivesGiveTheInput) {
  GPU_OR_SKIP();
  on_ranks(1, [](kolo::Context& context) {
    kolo_context* const kolo = context.handle();
    const Stream stream(0);
    for (const std::size_t count : {std::size_t{1}, std::size_t{1037}, std::size_t{1'000'003}}) {
      std::vector<float> input(count);
      for (std::size_t i = 0; i < count; ++i) input[i] = static_cast<float>(i % 8191);
      DeviceArray<float> in(0, input);
      const auto expect = [&](const char* what, const auto& call) {
        DeviceArray<float> out(0, count);
        for (int round = 0; round < 2; ++round) {
          const std::string name = std::string(what) + std::to_string(count);
          const kolo_options options = named(name, stream);
          kolo_request request = KOLO_REQUEST_NULL;
          must(call(out.get(), &options, &request));
          must(kolo_stream_wait(kolo, request, stream.get(), KOLO_FOREVER));
          EXPECT_EQ(out.read(stream.get()), input) << name << ", round " << round;
          must(kolo_wait(kolo, &request, KOLO_FOREVER));
        }
      };
      for (const kolo_op op : {KOLO_SUM, KOLO_PROD, KOLO_MAX, KOLO_MIN, KOLO_AVG}) {
        const std::string sum = "allreduce" + std::to_string(op) + ".";
        expect(sum.c_str(), [&](float* out, const kolo_options* options, kolo_request* request) {
          return kolo_allreduce(kolo, in.get(), out, count, KOLO_FLOAT32, op, options, request);
        });
      }
      expect("scatter", [&](float* out, const kolo_options* options, kolo_request* request) {
        return kolo_reduce_scatter(kolo, in.get(), out, count, KOLO_FLOAT32, KOLO_SUM, options,
                                   request);
      });
      expect("gather", [&](float* out, const kolo_options* options, kolo_request* request) {
        return kolo_allgather(kolo, in.get(), out, count, KOLO_FLOAT32, options, request);
      });
      expect("broadcast", [&](float* out, const kolo_options* options, kolo_request* request) {
        return kolo_broadcast(kolo, in.get(), out, count, KOLO_FLOAT32, 0, options, request);
      });
      expect("alltoall", [&](float* out, const kolo_options* options, kolo_request* request) {
        return kolo_alltoall(kolo, in.get(), out, count, KOLO_FLOAT32, options, request);
      });
    }
  });
}

// Steps in which one stream writes the input, kolo sums it, and another stream reads the output,
// and no host waits for the device: each reader must find its own step's numbers.
void run_steps(kolo::Context& context, int device, const std::string& name, int steps) {
  constexpr std::size_t kCount = 50'000;
  const Stream writer(device);
  const Stream reader(device);
  const Load load(device);
  DeviceArray<char> data(device, kCount);
  auto pinned =
      PinnedBuffer::create(*gpu_test::runtime(), kCount * static_cast<std::size_t>(steps));
  ASSERT_TRUE(pinned.is_ok()) << pinned.status().text();
  std::vector<kolo_request> requests(static_cast<std::size_t>(steps), KOLO_REQUEST_NULL);
  for (int step = 0; step < steps; ++step) {
    const auto slot = static_cast<std::size_t>(step);
    load.queue(step % 2 == 0 ? writer : reader);
    check(gpu_test::runtime()->cudaMemsetAsync(data.get(), step % 50 + 1, kCount, writer.get()),
          "memset");
    const std::string step_name = name + "." + std::to_string(step);
    const kolo_options options = named(step_name, writer);
    must(kolo_allreduce(context.handle(), data.get(), data.get(), kCount, KOLO_INT8, KOLO_SUM,
                        &options, &requests[slot]));
    must(kolo_stream_wait(context.handle(), requests[slot], reader.get(), KOLO_FOREVER));
    check(gpu_test::runtime()->cudaMemcpyAsync(pinned->data() + slot * kCount, data.get(), kCount,
                                               gpu_test::cuda::kCopyDeviceToHost, reader.get()),
          "copy");
    pass(reader, writer);
  }
  must(kolo_wait_all(context.handle(), requests.data(), requests.size(), KOLO_FOREVER));
  reader.synchronize();
  writer.synchronize();
  for (int step = 0; step < steps; ++step) {
    const auto expected = static_cast<std::byte>((step % 50 + 1) * context.size());
    const std::byte* const found = pinned->data() + static_cast<std::size_t>(step) * kCount;
    EXPECT_EQ(std::count(found, found + kCount, expected), kCount) << name << ", step " << step;
  }
}

TEST(OneRank, OrderUnderLoad) {
  GPU_OR_SKIP();
  on_ranks(1, [](kolo::Context& context) { run_steps(context, 0, "load", 100); });
}

TEST(OneRank, OrderUnderLoadOfSeveralThreads) {
  GPU_OR_SKIP();
  on_ranks(1, [](kolo::Context& context) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back(
          [&context, i] { run_steps(context, 0, "thread" + std::to_string(i), 30); });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(TwoRanks, OrderUnderLoad) {  // staged, where there is one GPU only
  GPU_OR_SKIP();
  on_ranks(2, [](kolo::Context& context) {
    run_steps(context, context.rank() % gpu_test::device_count(), "load", 40);
  });
}

kolo::Config alone() {
  kolo::Config config;
  config.set("notice", "0");
  return config;
}

TEST(OneRank, AbortDuringQueuedWork) {
  GPU_OR_SKIP();
  constexpr std::size_t kCount = 300'000;
  constexpr int kOperations = 60;
  for (int round = 0; round < 3; ++round) {
    kolo::Context context(alone());
    const Stream stream(0);
    const Load load(0);
    DeviceArray<float> data(0, std::vector<float>(kCount, 1.0F));
    load.queue(stream, 100);
    std::vector<kolo_request> requests(kOperations, KOLO_REQUEST_NULL);
    int submitted = 0;
    std::thread aborter;
    for (int i = 0; i < kOperations; ++i) {
      if (i == kOperations / 2) {
        aborter = std::thread([&] { must(kolo_abort(context.handle(), "a test says so")); });
      }
      const std::string name = "queued." + std::to_string(i);
      const kolo_options options = named(name, stream);
      const kolo_status status =
          kolo_allreduce(context.handle(), data.get(), data.get(), kCount, KOLO_FLOAT32, KOLO_SUM,
                         &options, &requests[static_cast<std::size_t>(i)]);
      if (status != KOLO_OK) {
        EXPECT_EQ(status, KOLO_ABORTED) << kolo_last_error();
        break;
      }
      ++submitted;
    }
    aborter.join();
    EXPECT_GE(submitted, kOperations / 2);
    for (int i = 0; i < submitted; ++i) {
      kolo_request& request = requests[static_cast<std::size_t>(i)];
      const kolo_status launched =
          kolo_stream_wait(context.handle(), request, stream.get(), 20'000);
      EXPECT_TRUE(launched == KOLO_OK || launched == KOLO_ABORTED) << kolo_last_error();
      const kolo_status status = kolo_wait(context.handle(), &request, 20'000);
      EXPECT_TRUE(status == KOLO_OK || status == KOLO_ABORTED) << kolo_last_error();
    }
    // The device is not stuck, and kolo has let go of the buffer.
    load.queue(stream);
    EXPECT_EQ(data.read(stream.get()), std::vector<float>(kCount, 1.0F));
  }
}

TEST(OneRank, WorksAgainAfterAnAbort) {
  GPU_OR_SKIP();
  for (int round = 0; round < 3; ++round) {
    kolo::Context context(alone());
    const Stream stream(0);
    DeviceArray<float> data(0, std::vector<float>(1000, 2.0F));
    const std::string name = "again";
    const kolo_options options = named(name, stream);
    must(kolo_allreduce(context.handle(), data.get(), data.get(), 1000, KOLO_FLOAT32, KOLO_SUM,
                        &options, nullptr));
    EXPECT_EQ(data.read(stream.get()), std::vector<float>(1000, 2.0F));
    if (round < 2) must(kolo_abort(context.handle(), "a test says so"));
  }
}

}  // namespace
