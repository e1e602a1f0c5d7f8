// A rank in a process of its own, for faults: three threads reduce tensors, each with its own way
// of waiting, until something ends them or they have done their rounds; and say with what, and
// when. What belongs to an operation that has ended with an error is filled with a mark, and looked
// at again at the end.
//
//   rounds=N          of each thread
//   fault=PLAN        of the fakes, once the program's own streams and memory are there
//   abort=MS          kolo_abort() that long after it is ready for its first operation
//   leave=MS          kolo_shutdown() that long after that, with whatever is under way
//   late=MS           kolo_shutdown() that long after all is done
//   stuck             gives nothing back at the end, as that would wait for the device
//   host              instead: tensors in host memory, and what asks for a device
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/fakes.h"

namespace {

using gpu_test::DeviceArray;
using gpu_test::Stream;
using Clock = std::chrono::steady_clock;

struct Plan {
  int rounds = 3;
  std::string fault;
  bool is_stuck = false;
  int abort_ms = -1;
  int leave_ms = -1;
  int late_ms = 0;
  bool on_host = false;

  Plan(int count, char** arguments) {
    const auto number = [&](const std::string& argument, const char* name, int& value) {
      const std::string prefix = std::string(name) + "=";
      if (argument.rfind(prefix, 0) == 0) value = std::stoi(argument.substr(prefix.size()));
    };
    for (int i = 1; i < count; ++i) {
      const std::string argument = arguments[i];
      on_host = on_host || argument == "host";
      is_stuck = is_stuck || argument == "stuck";
      if (argument.rfind("fault=", 0) == 0) fault = argument.substr(6);
      number(arguments[i], "rounds", rounds);
      number(arguments[i], "abort", abort_ms);
      number(arguments[i], "leave", leave_ms);
      number(arguments[i], "late", late_ms);
    }
  }
};

void say(const std::string& who, kolo_status status, Clock::time_point since) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since);
  const std::string text = status == KOLO_OK ? "" : kolo_last_error();
  const std::string line = "SAID " + who + " " + std::to_string(status) + " after " +
                           std::to_string(ms.count()) + " ms " + text + "\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) return;
}

class Actor {
 public:
  Actor(kolo_context* context, int device) : context_(context), device_(device) {}

  void act(const Plan& plan) {
    const DeviceArray<float> first(device_, 1000);
    const Stream streams[] = {Stream(device_), Stream(device_), Stream(device_)};
    const DeviceArray<float> tensors[] = {{device_, 1000}, {device_, 2000}, {device_, 3000}};
    if (!plan.fault.empty() && gpu_test::fakes().set_faults(plan.fault.c_str()) != 0) {
      report("plan", KOLO_INTERNAL);
    }
    if (write(STDOUT_FILENO, "READY\n", 6) != 6) return;
    std::thread ender([&] { end_early(plan); });
    kolo_status status = sum("first", first, nullptr, nullptr);
    mark(first, status);
    if (report("first", status)) {
      std::array<std::thread, 3> threads;
      for (std::size_t i = 0; i < 3; ++i) {
        threads[i] = std::thread([&, i] { run(plan, i, tensors[i], streams[i].get()); });
      }
      for (std::thread& thread : threads) thread.join();
    }
    ender.join();
    std::this_thread::sleep_for(std::chrono::milliseconds(plan.late_ms));
    report("shutdown", kolo_shutdown(context_));
    const std::string calls =
        "CALLS OF NCCL " + std::to_string(gpu_test::fakes().calls("ncclAllReduce")) + "\n";
    if (write(STDOUT_FILENO, calls.data(), calls.size()) < 0) return;
    look_at_marks();
    if (plan.is_stuck) _exit(0);
  }

  // Where there is no device.
  void ask() {
    std::vector<float> values(100, 1.0F);
    const auto sum_of = [&](const char* name, std::int32_t device) {
      kolo_options options = KOLO_OPTIONS_INIT;
      options.name = name;
      options.device = device;
      return kolo_allreduce(context_, values.data(), values.data(), values.size(), KOLO_FLOAT32,
                            KOLO_SUM, &options, nullptr);
    };
    report("before", sum_of("before", KOLO_DEVICE_AUTO));
    report("device", sum_of("device", 0));
    void* memory = nullptr;
    report("memory", kolo_alloc_device(context_, 0, 1000, &memory));
    report("after", sum_of("after", KOLO_DEVICE_HOST));
    report("shutdown", kolo_shutdown(context_));
  }

 private:
  bool report(const char* who, kolo_status status) {
    say(who, status, begin_);
    return status == KOLO_OK;
  }

  void end_early(const Plan& plan) {
    if (plan.abort_ms >= 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(plan.abort_ms));
      kolo_abort(context_, "the test's own");
    }
    if (plan.leave_ms >= 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(plan.leave_ms));
      const auto begin = Clock::now();
      const kolo_status status = kolo_shutdown(context_);
      say("leave", status, begin);
    }
  }

  // From now on nobody may write there.
  void mark(const DeviceArray<float>& data, kolo_status status) {
    if (status == KOLO_OK) return;
    const std::vector<float> marks(data.count(), kMark);
    const std::lock_guard lock(mutex_);
    marked_.push_back(&data);
    gpu_test::fakes().poke(data.get(), marks.data(), marks.size() * sizeof(float));
  }
  void look_at_marks() {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (const DeviceArray<float>* data : marked_) {
      std::vector<float> values(data->count());
      gpu_test::fakes().peek(data->get(), values.data(), values.size() * sizeof(float));
      const bool all = std::ranges::all_of(values, [](float value) { return value == kMark; });
      if (!all) report("touched", KOLO_INTERNAL);
    }
  }

  kolo_status sum(const std::string& name, const DeviceArray<float>& data,
                  gpu_test::cuda::StreamHandle stream, kolo_request* request) {
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = name.c_str();
    options.stream = stream;
    return kolo_allreduce(context_, data.get(), data.get(), data.count(), KOLO_FLOAT32, KOLO_SUM,
                          &options, request);
  }

  kolo_status once(std::size_t way, const std::string& name, const DeviceArray<float>& data,
                   gpu_test::cuda::StreamHandle stream) {
    if (way == 0) return sum(name, data, nullptr, nullptr);
    kolo_request request = KOLO_REQUEST_NULL;
    kolo_status status = sum(name, data, stream, &request);
    if (status == KOLO_OK && way == 2) {
      status = kolo_stream_wait(context_, request, stream, KOLO_FOREVER);
    }
    const kolo_status waited = wait(request);
    return status == KOLO_OK ? waited : status;
  }

  // In short waits, each of which must come back.
  kolo_status wait(kolo_request request) {
    kolo_status status = KOLO_IN_PROGRESS;
    while (status == KOLO_IN_PROGRESS) {
      const auto begin = Clock::now();
      status = kolo_wait(context_, &request, 100);
      if (Clock::now() - begin > std::chrono::seconds(5)) say("late", status, begin);
    }
    return status;
  }

  void run(const Plan& plan, std::size_t way, const DeviceArray<float>& data,
           gpu_test::cuda::StreamHandle stream) {
    static constexpr const char* kWays[] = {"block", "wait", "stream"};
    gpu_test::runtime()->cudaSetDevice(device_);
    kolo_status status = KOLO_OK;
    for (int round = 0; round < plan.rounds && status == KOLO_OK; ++round) {
      status = once(way, kWays[way], data, stream);
    }
    mark(data, status);
    report(kWays[way], status);
  }

  static constexpr float kMark = 12345.0F;

  kolo_context* context_;
  int device_;
  Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;
  std::vector<const DeviceArray<float>*> marked_;
};

}  // namespace

int main(int count, char** arguments) {
  const Plan plan(count, arguments);
  kolo_context* context = nullptr;
  const auto begin = Clock::now();
  const kolo_status status = kolo_init(nullptr, &context);
  if (status != KOLO_OK) {
    say("init", status, begin);
    return 1;
  }
  Actor actor(context, 0);
  plan.on_host ? actor.ask() : actor.act(plan);
  kolo_shutdown(context);
  return 0;  // on a broken device giving back fails
}
