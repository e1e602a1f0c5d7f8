// A stand-in Context under the C boundary: it notes what it was called with, and does what the
// script says. Context::create is fake_context.cc's.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "core/context.h"
#include "kolo/kolo.h"

namespace kolo::internal {

// What the stand-in saw last, and what it shall do next.
struct Script {
  std::atomic<int> alive{0};
  std::atomic<int> closed_in_child{0};
  std::atomic<bool> is_waiting{false};
  std::atomic<bool> is_shut_down{false};
  Submission last;
  void* stream = nullptr;
  char memory[8] = {};  // what kolo_alloc gives
  std::size_t counts[4] = {};
  std::vector<RequestId> started;
  std::string abort_reason;
  enum class Throw { kNothing, kBug, kBadAlloc, kInt } thrown = Throw::kNothing;
  Status create_status;
  Status shutdown_status;
};
inline Script* script = nullptr;

class FakeContext final : public Context {
 public:
  FakeContext() { ++script->alive; }
  ~FakeContext() override { --script->alive; }

  Status shutdown() override {
    if (!script->shutdown_status) return script->shutdown_status;
    if (script->is_shut_down.exchange(true)) return {StatusCode::kNotInitialized, "again"};
    return Status::ok();
  }
  Status abort(const std::string& reason) override {
    script->abort_reason = reason;
    return Status::ok();
  }
  Status health() const override {
    switch (script->thrown) {
      case Script::Throw::kNothing: return Status::ok();
      case Script::Throw::kBug: KOLO_CHECK(1 + 1 == 3); break;
      case Script::Throw::kBadAlloc: throw std::bad_alloc();
      case Script::Throw::kInt: throw 7;
    }
    return Status::ok();
  }
  void close_in_child() const noexcept override { ++script->closed_in_child; }
  int rank() const override { return 1; }
  int size() const override { return 4; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 2; }
  std::string info_json() const override { return "{\"size\":4}"; }
  Result<void*> allocate(std::size_t bytes) override {
    if (bytes > 4096) return resource_error("no memory for " + std::to_string(bytes) + " bytes");
    return script->memory;
  }
  Result<void*> allocate_on(std::int32_t device, std::size_t bytes) override {
    if (device > 3) return invalid_argument("no device " + std::to_string(device));
    return allocate(bytes);
  }
  Status free(void* memory) override {
    return memory == script->memory ? Status::ok() : invalid_argument("not kolo_alloc's");
  }
  Result<RequestId> submit(Submission s) override {
    script->last = std::move(s);
    return RequestId{17};
  }
  Status run(Submission s) override {
    script->last = std::move(s);
    return Status::ok();
  }
  Status refuse(const Submission& s, Status why) override {
    script->last = s;
    return why;
  }
  Status group_run() override { return Status::ok(); }
  Status group_begin(std::string) override { return Status::ok(); }
  Result<RequestId> group_end() override { return RequestId{18}; }
  Result<RequestId> prepare(Submission s) override {
    script->last = std::move(s);
    return RequestId{19};
  }
  Status start(std::span<const RequestId> requests) override {
    script->started.assign(requests.begin(), requests.end());
    return Status::ok();
  }
  // Request 17 completes only with shutdown; any other at once.
  Status wait(RequestId request, Nanos limit, bool& done) override {
    done = request != 17 || script->is_shut_down;
    if (done) return Status::ok();
    if (limit == Nanos::zero()) return {StatusCode::kInProgress, "running"};
    script->is_waiting = true;
    while (!script->is_shut_down) std::this_thread::yield();
    done = true;
    return aborted("shut down while waiting");
  }
  Status stream_wait(RequestId request, void* stream, Nanos limit) override {
    script->stream = stream;
    bool done = false;
    return wait(request, limit, done);
  }
  Status test(RequestId request, bool& done) override { return wait(request, Nanos{0}, done); }
  Status wait_all(std::span<const RequestId> requests, Nanos, std::span<bool> done) override {
    for (std::size_t i = 0; i < requests.size(); ++i) done[i] = requests[i] != 17;
    return {StatusCode::kInProgress, "one is running"};
  }
  Status release(RequestId) override { return Status::ok(); }
  Result<RequestId> join(const Submission& s) override {
    script->last = s;
    return RequestId{20};
  }
  Status run_join(const Submission& s) override {
    script->last = s;
    *s.number = 3;
    return Status::ok();
  }
  Result<std::vector<int>> ranks_of(std::int32_t set) const override {
    if (set == 5) return std::vector<int>{0, 2, 3};
    return invalid_argument("there is no process set " + std::to_string(set));
  }
  Result<Output> output(RequestId request) override {
    if (request != 17) return invalid_argument("no output");
    return Output{script->memory, 6, script->counts};
  }
};

class BoundaryTest : public testing::Test {
 protected:
  void SetUp() override {
    clearenv();
    script = &script_;
    ASSERT_EQ(kolo_init(nullptr, &context_), KOLO_OK) << kolo_last_error();
  }
  void TearDown() override {
    script_.shutdown_status = Status::ok();
    kolo_shutdown(context_);
    EXPECT_EQ(script_.alive, 0);
  }
  kolo_status allreduce(const kolo_options* options, kolo_request* request = nullptr) {
    return kolo_allreduce(context_, data_, data_, 4, KOLO_FLOAT32, KOLO_AVG, options, request);
  }

  Script script_;
  kolo_context* context_ = nullptr;
  float data_[4] = {};
};

}  // namespace kolo::internal
