// What repeats costs the caller one event for each tensor that it submits and one wait for each
// that a stream waits for: no host waits, no memory, no handles.
#include <atomic>
#include <barrier>
#include <functional>
#include <string>
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
            calls("cudaEventCreateWithFlags"),
            calls("cudaMalloc") + calls("cudaHostAlloc") + calls("cudaFree") +
                calls("cudaFreeHost") + calls("ncclMemAlloc"),
            calls("cudaEventRecord"),
            calls("cudaStreamWaitEvent")};
  }
  Counts since(const Counts& before) const {
    return {waits - before.waits,     synchronized - before.synchronized,
            events - before.events,   memory - before.memory,
            records - before.records, stream_waits - before.stream_waits};
  }
};

// One step, again and again, on all ranks; each records `records` events.
class Steady {
 public:
  // `records`, `waits`: of the caller, in each step.
  using Step = std::function<void(kolo::Context&, const Stream&)>;
  Steady(long records, long waits) : records_(records), waits_(waits) {}
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
      EXPECT_EQ(all.events, 0) << "events made";
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
  long records_;
  long waits_;
  std::barrier<> together_{kRanks};
  Counts before_{};
  std::size_t allocations_ = 0;
  bool counts_allocations_ = true;
};

TEST(Counted, ASingleTensorAndAStreamThatWaits) {
  Steady steady(1, 1);
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

TEST(Counted, AGroupOfTwenty) {
  constexpr int kMembers = 20;
  Steady steady(kMembers, 0);
  steady.allow_allocations();
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
        must(sum(c, names[i], tensors[i], s.get(), nullptr));
      }
      kolo_request request = KOLO_REQUEST_NULL;
      must(kolo_group_end(c.handle(), &request));
      must(kolo_wait(c.handle(), &request, KOLO_FOREVER));
    });
  });
}

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
