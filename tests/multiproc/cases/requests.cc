// Requests: limits, callbacks, persistent and unnamed operations, several threads and contexts.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

// The last rank submits after the limit of the others has passed: all get TIMED_OUT, it as well,
// and nothing else fails.
int timeout_on_all() {
  const Job job;
  const int last = job.size() - 1;
  const std::string missing = "missing on rank " + std::to_string(last);
  for (int round = 0; round < 2; ++round) {
    float value = 1.0F;
    kolo_options options = named("limited");
    options.timeout_ms = 400;
    if (job.rank() == last) sleep_ms(1000);
    const Stopwatch watch;
    job.finish(job.submit_raw(options, &value, 1, KOLO_FLOAT32), KOLO_TIMED_OUT);
    if (job.rank() == last)
      watch.expect_between(0, 1, "the late rank's wait");
    else
      watch.expect_between(0.35, 1.4, "the wait");
    expect_text({"'limited'", missing});
    KOLO_EXPECT(value == 1.0F);
    job.probe();
    KOLO_EXPECT(job.reduce("limited", std::vector<float>{1.0F})[0] ==
                static_cast<float>(job.size()));
  }
  job.shutdown();
  return 0;
}

// A wait's own limit leaves the request alive.
int wait_limit() {
  const Job job;
  if (job.rank() != 0) sleep_ms(500);
  std::vector<float> values = {2.0F};
  kolo_request request = job.submit("slow", values);
  if (job.rank() == 0) {
    const Stopwatch watch;
    expect_status(kolo_wait(job.context(), &request, 0), KOLO_IN_PROGRESS, "no time at all");
    watch.expect_between(0, 0.1, "a wait of 0 ms");
    expect_status(kolo_wait(job.context(), &request, 100), KOLO_IN_PROGRESS, "a short wait");
    watch.expect_between(0.09, 0.3, "a wait of 100 ms");
    std::int32_t done = 7;
    expect_status(kolo_test(job.context(), &request, &done), KOLO_OK, "kolo_test");
    KOLO_EXPECT(done == 0 && request != KOLO_REQUEST_NULL);
  }
  std::int32_t done = 0;
  const Stopwatch watch;
  while (done == 0) {
    expect_status(kolo_test(job.context(), &request, &done), KOLO_OK, "kolo_test");
    if (watch.seconds() > 10) fail("kolo_test alone does not finish an operation");
  }
  KOLO_EXPECT(request == KOLO_REQUEST_NULL);
  KOLO_EXPECT(values[0] == 2.0F * static_cast<float>(job.size()));
  job.shutdown();
  return 0;
}

struct Seen {
  const Job* job = nullptr;
  kolo_request other = KOLO_REQUEST_NULL;  // running, when the callback comes
  std::atomic<int> calls{0};
  kolo_status status = KOLO_INTERNAL;
  std::string text;
  std::string wrong;
};

void note(bool right, const char* what, Seen& seen) {
  if (!right) seen.wrong += std::string(what) + "; ";
}

void on_done(kolo_status status, const char* text, void* user) {
  auto& seen = *static_cast<Seen*>(user);
  seen.status = status;
  seen.text = text;
  kolo_context* context = seen.job->context();
  if (seen.other != KOLO_REQUEST_NULL) {
    kolo_request copy = seen.other;
    note(kolo_wait(context, &copy, KOLO_FOREVER) == KOLO_WOULD_DEADLOCK, "wait", seen);
    note(kolo_barrier(context, nullptr, nullptr) == KOLO_WOULD_DEADLOCK, "barrier", seen);
    note(kolo_shutdown(context) == KOLO_WOULD_DEADLOCK, "shutdown", seen);
    std::int32_t done = 1;
    note(kolo_test(context, &copy, &done) == KOLO_OK && done == 0, "test", seen);
    kolo_request submitted = KOLO_REQUEST_NULL;
    kolo_options options = named("from a callback");
    note(kolo_barrier(context, &options, &submitted) == KOLO_OK, "submit", seen);
    note(kolo_request_free(context, &submitted) == KOLO_OK, "free", seen);
  }
  seen.calls.store(1, std::memory_order_release);
}

void await(const Seen& seen) {
  const Stopwatch watch;
  while (seen.calls.load(std::memory_order_acquire) == 0) {
    if (watch.seconds() > 10) fail("the callback does not come");
    sleep_ms(1);
  }
  if (!seen.wrong.empty()) fail("inside the callback: " + seen.wrong);
}

// Each rank's callback finds an operation running that the others submit only afterwards.
int callbacks_in_turn() {
  const Job job;
  for (int turn = 0; turn < job.size(); ++turn) {
    std::vector<float> running = {1.0F};
    Seen seen;
    seen.job = &job;
    const bool mine = job.rank() == turn;
    kolo_request held = KOLO_REQUEST_NULL;
    if (mine) seen.other = held = job.submit("running", running);
    float value = 1.0F;
    kolo_options options = named("told");
    options.callback = on_done;
    options.user = &seen;
    job.finish(job.submit_raw(options, &value, 1, KOLO_FLOAT32), KOLO_OK);
    await(seen);
    KOLO_EXPECT(seen.status == KOLO_OK && seen.text.empty());
    job.probe();  // the turn's callback has been
    if (!mine) {
      const kolo_options named_barrier = named("from a callback");
      held = job.submit("running", running);
      expect_status(kolo_barrier(job.context(), &named_barrier, nullptr), KOLO_OK, "barrier");
    }
    job.finish(held, KOLO_OK);
    KOLO_EXPECT(running[0] == static_cast<float>(job.size()));
  }
  Seen failed;
  failed.job = &job;
  std::vector<float> values(static_cast<std::size_t>(job.rank() + 1), 1.0F);
  kolo_options options = named("differs");
  options.callback = on_done;
  options.user = &failed;
  const kolo_request request = job.submit_raw(options, values.data(), values.size(), KOLO_FLOAT32);
  await(failed);
  KOLO_EXPECT(failed.status == KOLO_MISMATCH);
  expect_text_in(failed.text, {"'differs'", "(1) on rank 0", "(2) on rank 1"});
  job.finish(request, KOLO_MISMATCH);
  job.shutdown();
  return 0;
}

int persistent() {
  const Job job;
  constexpr std::size_t kTensors = 50;
  std::vector<std::vector<std::int32_t>> values(kTensors);
  std::vector<kolo_request> requests(kTensors);
  for (std::size_t i = 0; i < kTensors; ++i) {
    values[i].assign(i + 1, 0);
    const std::string name = "p" + std::to_string(i);
    kolo_options options = named(name.c_str());
    options.persistent = 1;
    expect_status(kolo_allreduce(job.context(), values[i].data(), values[i].data(),
                                 values[i].size(), KOLO_INT32, KOLO_SUM, &options, &requests[i]),
                  KOLO_OK, "preparing");
  }
  kolo_request first = requests[0];
  expect_status(kolo_wait(job.context(), &first, 0), KOLO_OK, "not started is complete");
  const std::vector<kolo_request> names = requests;
  if (job.rank() == 0) {  // the others come 200 ms later
    expect_status(kolo_start(job.context(), &first, 1), KOLO_OK, "kolo_start");
    expect_status(kolo_start(job.context(), requests.data(), 2), KOLO_DUPLICATE_NAME,
                  "a start of one that runs");
  } else {
    sleep_ms(200);
    expect_status(kolo_start(job.context(), &first, 1), KOLO_OK, "kolo_start");
  }
  expect_status(kolo_wait(job.context(), &first, KOLO_FOREVER), KOLO_OK, "kolo_wait");
  for (std::int32_t step = 0; step < 100; ++step) {
    for (auto& tensor : values) tensor.assign(tensor.size(), step + job.rank());
    // In another order on every rank and step.
    std::vector<kolo_request> order = requests;
    std::rotate(order.begin(),
                order.begin() + (step * 7 + job.rank() * 13) % static_cast<int>(kTensors),
                order.end());
    expect_status(kolo_start(job.context(), order.data(), order.size()), KOLO_OK, "kolo_start");
    expect_status(kolo_wait_all(job.context(), requests.data(), requests.size(), 10'000), KOLO_OK,
                  "kolo_wait_all");
    KOLO_EXPECT(requests == names);
    const std::int32_t want = job.size() * step + job.size() * (job.size() - 1) / 2;
    for (const auto& tensor : values) {
      for (const std::int32_t value : tensor) KOLO_EXPECT(value == want);
    }
  }
  for (kolo_request& request : requests) {
    expect_status(kolo_request_free(job.context(), &request), KOLO_OK, "kolo_request_free");
    KOLO_EXPECT(request == KOLO_REQUEST_NULL);
  }
  job.shutdown();
  return 0;
}

int unnamed() {
  const Job job;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<std::int64_t>> values(10);
    std::vector<kolo_request> requests;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i].assign(i + 1, static_cast<std::int64_t>(i) + job.rank());
      requests.push_back(job.submit(nullptr, values[i]));
    }
    expect_status(kolo_wait_all(job.context(), requests.data(), requests.size(), 10'000), KOLO_OK,
                  "kolo_wait_all");
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t want =
          job.size() * static_cast<std::int64_t>(i) + job.size() * (job.size() - 1) / 2;
      for (const std::int64_t value : values[i]) KOLO_EXPECT(value == want);
    }
    expect_status(kolo_group_begin(job.context(), nullptr), KOLO_OK, "kolo_group_begin");
    std::vector<float> a = {1.0F};
    std::vector<float> b = {2.0F};
    const kolo_request members[] = {job.submit(nullptr, a), job.submit(nullptr, b)};
    expect_status(kolo_group_end(job.context(), nullptr), KOLO_OK, "kolo_group_end");
    for (const kolo_request member : members) job.finish(member, KOLO_OK);
    KOLO_EXPECT(a[0] == static_cast<float>(job.size()) && b[0] == 2 * a[0]);
  }
  // The same number, but not the same operation.
  std::vector<float> values(static_cast<std::size_t>(job.rank()) + 1, 1.0F);
  job.finish_soon(job.submit(nullptr, values), KOLO_MISMATCH);
  expect_text({"operation number", "(1) on rank 0", "(2) on rank 1"});
  job.probe();
  job.shutdown();
  return 0;
}

int threads() {
  const Job job;
  constexpr int kThreads = 4;
  std::vector<std::thread> workers;
  for (int t = 0; t < kThreads; ++t) {
    workers.emplace_back([&job, t] {
      const std::string name = "thread " + std::to_string((t + job.rank()) % kThreads);
      const auto extra = static_cast<std::int32_t>((t + job.rank()) % kThreads);
      for (std::int32_t step = 0; step < 100; ++step) {
        std::vector<std::int32_t> values(200, extra + step);
        if (step % 2 == 0) {
          values = job.reduce(name.c_str(), values);
        } else {
          expect_status(kolo_group_begin(job.context(), (name + " group").c_str()), KOLO_OK,
                        "kolo_group_begin");
          const kolo_request member = job.submit("member", values);
          expect_status(kolo_group_end(job.context(), nullptr), KOLO_OK, "kolo_group_end");
          job.finish(member, KOLO_OK);
        }
        for (const std::int32_t value : values) KOLO_EXPECT(value == job.size() * (extra + step));
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  job.probe();
  job.shutdown();
  return 0;
}

}  // namespace

std::vector<Situation> request_situations() {
  return {{"timeout", timeout_on_all}, {"wait-limit", wait_limit}, {"callbacks", callbacks_in_turn},
          {"persistent", persistent},  {"unnamed", unnamed},       {"threads", threads}};
}

}  // namespace kolo::cases
