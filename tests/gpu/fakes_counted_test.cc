// What repeats costs the caller one event for each tensor that it submits and one wait for each
// that a stream waits for, and kolo's own thread a wait for each tensor and an event for each
// operation: no host waits, no memory, no handles.
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/fakes.h"
#include "tests/gpu/kolo_allocations.h"

namespace gpu_test {
namespace {

constexpr int kRanks = 2;
constexpr int kTimes = 200;

// Of the whole process, or of this thread.
struct Counts {
  long waits, synchronized, events, memory, records, stream_waits;

  static Counts now(bool of_thread) {
    const Fakes& f = fakes();
    const auto calls = [&](const char* name) {
      return of_thread ? f.calls_of_this_thread(name) : f.calls(name);
    };
    return {f.host_waits(of_thread ? -1 : 0),
            calls("cudaEventSynchronize"),
            calls("cudaEventCreateWithFlags") + calls("cudaEventDestroy") +
                calls("cudaStreamCreateWithPriority") + calls("ncclCommInitRankConfig"),
            calls("cudaMalloc") + calls("cudaHostAlloc") + calls("cudaFree") +
                calls("cudaFreeHost") + calls("ncclMemAlloc") + calls("ncclMemFree"),
            calls("cudaEventRecord"),
            calls("cudaStreamWaitEvent")};
  }
  Counts since(const Counts& before) const {
    return {waits - before.waits,     synchronized - before.synchronized,
            events - before.events,   memory - before.memory,
            records - before.records, stream_waits - before.stream_waits};
  }
};

// One step, again and again, on all ranks.
class Steady {
 public:
  using Step = std::function<void(kolo::Context&, const Stream&)>;
  // `records`, `waits`: of the caller, in each step. `tasks`: how many pieces of work each rank
  // hands to its device in a step; 0: fused as it happens, up to one for each tensor.
  Steady(long records, long waits, long tasks = 0)
      : records_(records), waits_(waits), tasks_(tasks) {}
  // Groups by name are put together anew each time, wherever their tensors lie.
  void allow_allocations() { counts_allocations_ = false; }

  void run(kolo::Context& context, const Stream& stream, const Step& step) {
    for (int i = 0; i < 50; ++i) step(context, stream);
    stream.synchronize();
    together_.arrive_and_wait();
    const Counts mine = Counts::now(true);
    if (context.rank() == 0) {
      before_ = Counts::now(false);
      count_allocations_of_kolo();
    }
    together_.arrive_and_wait();
    for (int i = 0; i < kTimes; ++i) step(context, stream);
    const Counts spent = Counts::now(true).since(mine);
    EXPECT_EQ(spent.waits, 0) << "host waits on the caller's thread";
    EXPECT_EQ(spent.records, kTimes * records_) << "events recorded on the caller's thread";
    EXPECT_LE(spent.stream_waits, kTimes * waits_) << "stream waits on the caller's thread";
    together_.arrive_and_wait();
    if (context.rank() == 0) {
      allocations_ = allocations_of_kolo();
      const Counts all = Counts::now(false).since(before_);
      EXPECT_EQ(all.waits, all.synchronized) << "host waits, but for the finishers'";
      EXPECT_EQ(all.events, 0) << "events, streams or communicators made, or given back";
      expect_order(all);
      EXPECT_EQ(all.memory, 0) << "memory taken or given back";
      if (counts_allocations_) {  // heartbeats come by the clock
        EXPECT_LT(static_cast<long>(allocations_), kTimes * records_ / 5)
            << "allocations of kolo's own";
      }
    }
    together_.arrive_and_wait();
    stream.synchronize();
  }

 private:
  // Of both ranks: kolo's stream waits for each tensor's event once, and each task has one event,
  // for which its finisher waits.
  void expect_order(const Counts& all) const {
    const long tensors = kRanks * kTimes * records_;
    const long own_records = all.records - tensors;
    EXPECT_EQ(own_records, all.synchronized) << "events of kolo's own, and waits of its finishers";
    if (tasks_ > 0) {
      EXPECT_EQ(own_records, kRanks * kTimes * tasks_) << "events of kolo's own";
    } else {
      EXPECT_LE(own_records, tensors) << "events of kolo's own";
    }
    EXPECT_GE(all.stream_waits, tensors) << "waits of kolo's stream for the tensors";
    EXPECT_LE(all.stream_waits, tensors + kRanks * kTimes * waits_) << "waits of streams";
  }

  long records_;
  long waits_;
  long tasks_;
  std::barrier<> together_{kRanks};
  Counts before_{};
  std::size_t allocations_ = 0;
  bool counts_allocations_ = true;
};

TEST(Counted, ASingleTensorAndAStreamThatWaits) {
  Steady steady(1, 1, 1);
  on_ranks(kRanks, [&](kolo::Context& context) {
    const Stream stream(context.rank());
    const DeviceArray<float> data(context.rank(), std::vector<float>(1000, 0.0F));
    steady.run(context, stream, [&](kolo::Context& c, const Stream& s) {
      kolo_request request = KOLO_REQUEST_NULL;
      must(sum(c, "one", data, s.get(), &request));
      must(kolo_stream_wait(c.handle(), request, s.get(), KOLO_FOREVER));
      must(kolo_wait(c.handle(), &request, KOLO_FOREVER));
    });
  });
}

TEST(Counted, ASingleTensorWhoseResultIsCounted) {
  Steady steady(1, 1);
  on_ranks(kRanks, [&](kolo::Context& context) {
    const Stream stream(context.rank());
    const DeviceArray<float> data(context.rank(), std::vector<float>(1000, 0.0F));
    kolo_result result{};
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = "counted";
    options.stream = stream.get();
    options.result = &result;
    steady.run(context, stream, [&](kolo::Context& c, const Stream& s) {
      kolo_request request = KOLO_REQUEST_NULL;
      must(kolo_allreduce(c.handle(), data.get(), data.get(), data.count(), KOLO_FLOAT32, KOLO_SUM,
                          &options, &request));
      must(kolo_stream_wait(c.handle(), request, s.get(), KOLO_FOREVER));
      must(kolo_wait(c.handle(), &request, KOLO_FOREVER));
    });
  });
}

// The name of such a call is free again when the device is done, as the last operation tells.
TEST(Counted, CallsOnAStreamAsNcclsOwn) {
  constexpr std::size_t kCalls = 5;
  Steady steady(kCalls + 1, kCalls);
  on_ranks(kRanks, [&](kolo::Context& context) {
    const Stream stream(context.rank());
    const DeviceArray<float> data(context.rank(), std::vector<float>(1000, 0.0F));
    std::vector<std::string> names;
    for (std::size_t i = 0; i < kCalls; ++i) names.push_back("call " + std::to_string(i));
    steady.run(context, stream, [&](kolo::Context& c, const Stream& s) {
      for (const std::string& name : names) must(sum(c, name, data, s.get(), nullptr));
      kolo_request request = KOLO_REQUEST_NULL;
      must(sum(c, "last", data, s.get(), &request));
      must(kolo_wait(c.handle(), &request, KOLO_FOREVER));
    });
  });
}

class Grouped : public ::testing::TestWithParam<bool> {};

// Fused: packed into one buffer by kolo's kernels, where they were built and scales are alike; else
// one group of NCCL's calls.
TEST_P(Grouped, OfTwenty) {
  constexpr int kMembers = 20;
  const bool alike = GetParam();
  Steady steady(kMembers, 0, 1);
  steady.allow_allocations();
  const long kernels = fakes().calls("launch");
  on_ranks(kRanks, [&](kolo::Context& context) {
    const Stream stream(context.rank());
    std::vector<DeviceArray<float>> tensors;
    std::vector<std::string> names;
    for (int i = 0; i < kMembers; ++i) {
      tensors.emplace_back(context.rank(), std::vector<float>(100, 0.0F));
      names.push_back("member " + std::to_string(i));
    }
    steady.run(context, stream, [&](kolo::Context& c, const Stream& s) {
      must(kolo_group_begin(c.handle(), "twenty"));
      for (std::size_t i = 0; i < kMembers; ++i) {
        kolo_options options = KOLO_OPTIONS_INIT;
        options.name = names[i].c_str();
        options.stream = s.get();
        options.prescale = alike ? 1.0 : 1.0 / static_cast<double>(i + 1);
        must(kolo_allreduce(c.handle(), tensors[i].get(), tensors[i].get(), 100, KOLO_FLOAT32,
                            KOLO_SUM, &options, nullptr));
      }
      kolo_request request = KOLO_REQUEST_NULL;
      must(kolo_group_end(c.handle(), &request));
      must(kolo_wait(c.handle(), &request, KOLO_FOREVER));
    });
  });
  const bool packs = fakes().calls("launch") > kernels;
  EXPECT_TRUE(alike || !packs);
  std::printf("fused tensors were %s\n", packs ? "packed" : "one group of NCCL's calls");
}

INSTANTIATE_TEST_SUITE_P(Counted, Grouped, ::testing::Bool(), [](const auto& alike) {
  return std::string(alike.param ? "Packed" : "Unpacked");
});

// ---- Each collective ----------------------------------------------------------------------------

using Call = std::function<kolo_status(kolo::Context&, const float* input, float* output,
                                       const kolo_options& options, kolo_request* request)>;

// One collective of 1000 elements, alone.
void expect_steady(const Call& call, long tasks) {
  Steady steady(1, 1, tasks);
  on_ranks(kRanks, [&](kolo::Context& context) {
    const Stream stream(context.rank());
    const DeviceArray<float> input(context.rank(), std::vector<float>(1000 * kRanks, 1.0F));
    const DeviceArray<float> output(context.rank(), std::vector<float>(1000 * kRanks, 1.0F));
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = "one";
    options.stream = stream.get();
    steady.run(context, stream, [&](kolo::Context& c, const Stream& s) {
      kolo_request request = KOLO_REQUEST_NULL;
      must(call(c, input.get(), output.get(), options, &request));
      must(kolo_stream_wait(c.handle(), request, s.get(), KOLO_FOREVER));
      must(kolo_wait(c.handle(), &request, KOLO_FOREVER));
    });
  });
}

const std::pair<const char*, Call> kCalls[] = {
    {"Allreduce",
     [](kolo::Context& c, const float* in, float* out, const kolo_options& options,
        kolo_request* request) {
       return kolo_allreduce(c.handle(), in, out, 1000, KOLO_FLOAT32, KOLO_SUM, &options, request);
     }},
    {"Broadcast",
     [](kolo::Context& c, const float* in, float* out, const kolo_options& options,
        kolo_request* request) {
       return kolo_broadcast(c.handle(), in, out, 1000, KOLO_FLOAT32, 1, &options, request);
     }},
    {"Allgather",
     [](kolo::Context& c, const float* in, float* out, const kolo_options& options,
        kolo_request* request) {
       return kolo_allgather(c.handle(), in, out, 1000, KOLO_FLOAT32, &options, request);
     }},
    {"ReduceScatter",
     [](kolo::Context& c, const float* in, float* out, const kolo_options& options,
        kolo_request* request) {
       return kolo_reduce_scatter(c.handle(), in, out, 1000, KOLO_FLOAT32, KOLO_SUM, &options,
                                  request);
     }},
    {"Alltoall", [](kolo::Context& c, const float* in, float* out, const kolo_options& options,
                    kolo_request* request) {
       return kolo_alltoall(c.handle(), in, out, 1000, KOLO_FLOAT32, &options, request);
     }}};

class EachCall : public ::testing::TestWithParam<std::size_t> {
 protected:
  void TearDown() override { unsetenv("KOLO_CUDA"); }
};

TEST_P(EachCall, ByNccl) { expect_steady(kCalls[GetParam()].second, 1); }

// Its two copies are waited for by the finisher, and the host waits until it is launched, which is
// when it is complete: that is its contract.
TEST_P(EachCall, Staged) {
  setenv("KOLO_CUDA", "staged", 1);
  expect_steady(kCalls[GetParam()].second, 2);
}

INSTANTIATE_TEST_SUITE_P(Counted, EachCall, ::testing::Range<std::size_t>(0, std::size(kCalls)),
                         [](const auto& call) { return std::string(kCalls[call.param].first); });

TEST(Counted, PersistentOnes) {
  constexpr std::size_t kTensors = 3;
  Steady steady(kTensors, kTensors);
  on_ranks(kRanks, [&](kolo::Context& context) {
    const Stream stream(context.rank());
    std::vector<DeviceArray<float>> tensors;
    std::vector<kolo_request> requests(kTensors, KOLO_REQUEST_NULL);
    for (std::size_t i = 0; i < kTensors; ++i) {
      tensors.emplace_back(context.rank(), std::vector<float>(100 + i, 0.0F));
      kolo_options options = KOLO_OPTIONS_INIT;
      const std::string name = "kept " + std::to_string(i);
      options.name = name.c_str();
      options.persistent = 1;
      options.stream = stream.get();
      must(kolo_allreduce(context.handle(), tensors[i].get(), tensors[i].get(), 100 + i,
                          KOLO_FLOAT32, KOLO_SUM, &options, &requests[i]));
    }
    steady.run(context, stream, [&](kolo::Context& c, const Stream& s) {
      must(kolo_start(c.handle(), requests.data(), kTensors));
      for (const kolo_request request : requests) {
        must(kolo_stream_wait(c.handle(), request, s.get(), KOLO_FOREVER));
      }
      must(kolo_wait_all(c.handle(), requests.data(), kTensors, KOLO_FOREVER));
    });
    for (kolo_request& request : requests) must(kolo_request_free(context.handle(), &request));
  });
}

}  // namespace
}  // namespace gpu_test
