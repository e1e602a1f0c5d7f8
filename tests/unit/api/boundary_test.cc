// The C boundary over a stand-in Context: how calls are counted, shut down and translated, what
// becomes of exceptions, and what a forked child is told.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/api/fake_context.h"

namespace kolo::internal {
namespace {

using testing::HasSubstr;

TEST_F(BoundaryTest, MemoryIsGivenAndTaken) {
  void* memory = nullptr;
  ASSERT_EQ(kolo_alloc(context_, 8, &memory), KOLO_OK) << kolo_last_error();
  EXPECT_EQ(memory, script_.memory);
  EXPECT_EQ(kolo_free(context_, memory), KOLO_OK);
  EXPECT_EQ(kolo_free(context_, nullptr), KOLO_OK);
  EXPECT_EQ(kolo_free(context_, &memory), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_alloc(context_, 8192, &memory), KOLO_RESOURCE);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(kolo_alloc(context_, 8, nullptr), KOLO_INVALID_ARGUMENT);
  EXPECT_THAT(kolo_last_error(), HasSubstr("memory is null"));
}

TEST_F(BoundaryTest, ArgumentsReachTheContext) {
  const std::int64_t shape[] = {2, 2};
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = "w";
  options.shape = shape;
  options.ndim = 2;
  options.prescale = 0.5;
  options.timeout_ms = 250;
  ASSERT_EQ(allreduce(&options), KOLO_OK) << kolo_last_error();
  EXPECT_EQ(script_.last.name, "w");
  EXPECT_EQ(script_.last.shape.data(), shape);
  EXPECT_EQ(script_.last.shape.size(), 2u);
  EXPECT_TRUE(script_.last.has_shape);
  EXPECT_EQ(script_.last.prescale, 0.5);
  EXPECT_EQ(script_.last.timeout, 250ms);
  EXPECT_EQ(script_.last.op, ReduceOp::kAvg);
  EXPECT_EQ(script_.last.count, 4u);
  ASSERT_EQ(allreduce(nullptr), KOLO_OK);
  EXPECT_EQ(script_.last.timeout, kNever);
  EXPECT_FALSE(script_.last.has_shape);
}

TEST_F(BoundaryTest, ABroadcastOffTheRootIgnoresItsInput) {
  ASSERT_EQ(kolo_broadcast(context_, nullptr, data_, 4, KOLO_FLOAT32, 0, nullptr, nullptr),
            KOLO_OK);
  EXPECT_EQ(script_.last.input, data_);
  const float other[4] = {};
  ASSERT_EQ(kolo_broadcast(context_, other, data_, 4, KOLO_FLOAT32, 1, nullptr, nullptr), KOLO_OK);
  EXPECT_EQ(script_.last.input, other);
}

TEST_F(BoundaryTest, BadOptionsAreRefused) {
  const auto refused = [&](auto change, const char* words) {
    kolo_options options = KOLO_OPTIONS_INIT;
    change(options);
    kolo_request request = 99;
    EXPECT_EQ(allreduce(&options, &request), KOLO_INVALID_ARGUMENT) << words;
    EXPECT_THAT(kolo_last_error(), HasSubstr(words));
    EXPECT_EQ(request, KOLO_REQUEST_NULL);
  };
  refused([](auto& o) { o.struct_size = 0; }, "struct_size is 0");
  refused([](auto& o) { o.struct_size = sizeof(o) - 1; }, "struct_size");
  refused([](auto& o) { o.struct_size = std::size_t{1} << 40; }, "struct_size");
  refused([](auto& o) { o.ndim = 1; }, "shape is null");
  const std::int64_t shape[] = {4};
  refused([&](auto& o) { o.shape = shape, o.ndim = -1; }, "ndim is -1");
  refused([&](auto& o) { o.shape = shape, o.ndim = 33; }, "ndim is 33");
  refused([](auto& o) { o.prescale = 0; }, "KOLO_OPTIONS_INIT");
  refused([](auto& o) { o.postscale = 0; }, "KOLO_OPTIONS_INIT");
  refused([](auto& o) { o.timeout_ms = -1; }, "timeout_ms is -1");
  refused([](auto& o) { o.timeout_ms = INT64_MAX; }, "timeout_ms");
  refused([](auto& o) { o.persistent = 2; }, "persistent");
  refused([](auto& o) { o.allocate = 2; }, "allocate");
  refused([](auto& o) { o.reserved = 1; }, "reserved");
  kolo_options options = KOLO_OPTIONS_INIT;
  options.persistent = 1;
  EXPECT_EQ(allreduce(&options), KOLO_INVALID_ARGUMENT);
}

TEST_F(BoundaryTest, ALongerStructOfZeroesIsUnderstood) {
  struct {
    kolo_options options = KOLO_OPTIONS_INIT;
    std::int64_t later = 0;
  } future;
  future.options.struct_size = sizeof(future);
  EXPECT_EQ(allreduce(&future.options), KOLO_OK);
  future.later = 1;
  EXPECT_EQ(allreduce(&future.options), KOLO_UNSUPPORTED);
}

TEST_F(BoundaryTest, TheStructOfTheFirstHeaderIsUnderstood) {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.struct_size = offsetof(kolo_options, device);
  options.name = "w";
  options.device = 7;  // not there in a program of that time
  options.stream = &options;
  ASSERT_EQ(allreduce(&options), KOLO_OK) << kolo_last_error();
  EXPECT_EQ(script_.last.name, "w");
  EXPECT_EQ(script_.last.device, KOLO_DEVICE_AUTO);
  EXPECT_EQ(script_.last.stream, nullptr);
}

TEST_F(BoundaryTest, DevicesAndStreamsReachTheContext) {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.device = 2;
  options.stream = data_;
  kolo_request request = KOLO_REQUEST_NULL;
  ASSERT_EQ(allreduce(&options, &request), KOLO_OK) << kolo_last_error();
  EXPECT_EQ(script_.last.device, 2);
  EXPECT_EQ(script_.last.stream, data_);
  EXPECT_EQ(kolo_stream_wait(context_, request, &options, 0), KOLO_IN_PROGRESS);
  EXPECT_EQ(script_.stream, &options);
  EXPECT_EQ(kolo_stream_wait(context_, KOLO_REQUEST_NULL, data_, KOLO_FOREVER), KOLO_OK);
  EXPECT_EQ(kolo_stream_wait(context_, request, data_, -2), KOLO_INVALID_ARGUMENT);

  void* memory = nullptr;
  EXPECT_EQ(kolo_alloc_device(context_, 1, 64, &memory), KOLO_OK);
  EXPECT_EQ(memory, script_.memory);
  EXPECT_EQ(kolo_alloc_device(context_, 4, 64, &memory), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(kolo_alloc_device(context_, KOLO_DEVICE_HOST, 64, &memory), KOLO_INVALID_ARGUMENT);
  EXPECT_THAT(kolo_last_error(), HasSubstr("use kolo_alloc"));
  EXPECT_EQ(kolo_alloc_device(context_, 0, 64, nullptr), KOLO_INVALID_ARGUMENT);
}

TEST_F(BoundaryTest, RequestsAreForgottenWhenDoneUnlessPersistent) {
  kolo_request request = KOLO_REQUEST_NULL;
  ASSERT_EQ(allreduce(nullptr, &request), KOLO_OK);
  EXPECT_NE(request, KOLO_REQUEST_NULL);
  EXPECT_EQ(kolo_wait(context_, &request, 0), KOLO_IN_PROGRESS);
  EXPECT_NE(request, KOLO_REQUEST_NULL);
  std::int32_t done = 1;
  EXPECT_EQ(kolo_test(context_, &request, &done), KOLO_OK);
  EXPECT_EQ(done, 0);
  kolo_options options = KOLO_OPTIONS_INIT;
  options.persistent = 1;
  kolo_request persistent = KOLO_REQUEST_NULL;
  ASSERT_EQ(allreduce(&options, &persistent), KOLO_OK);
  ASSERT_EQ(kolo_start(context_, &persistent, 1), KOLO_OK);
  EXPECT_THAT(script_.started, testing::ElementsAre(19u));
  EXPECT_EQ(kolo_start(context_, &request, 1), KOLO_INVALID_ARGUMENT);
  kolo_request group = KOLO_REQUEST_NULL;
  ASSERT_EQ(kolo_group_end(context_, &group), KOLO_OK);
  kolo_request all[] = {request, persistent, group, KOLO_REQUEST_NULL};
  EXPECT_EQ(kolo_wait_all(context_, all, 4, KOLO_FOREVER), KOLO_IN_PROGRESS);
  EXPECT_EQ(all[0], request);
  EXPECT_EQ(all[1], persistent);
  EXPECT_EQ(all[2], KOLO_REQUEST_NULL);
  EXPECT_EQ(kolo_wait(context_, &group, KOLO_FOREVER), KOLO_OK);
  EXPECT_EQ(group, KOLO_REQUEST_NULL);
  EXPECT_EQ(kolo_wait(context_, &group, -2), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_request_free(context_, &persistent), KOLO_OK);
  EXPECT_EQ(persistent, KOLO_REQUEST_NULL);
  EXPECT_EQ(kolo_request_free(context_, &persistent), KOLO_OK);
}

TEST_F(BoundaryTest, NothingThrownCrossesTheBoundary) {
  script_.thrown = Script::Throw::kBug;
  EXPECT_EQ(kolo_health(context_), KOLO_INTERNAL);
  EXPECT_THAT(kolo_last_error(), HasSubstr("1 + 1 == 3"));
  EXPECT_THAT(script_.abort_reason, HasSubstr("1 + 1 == 3")) << "a Bug breaks the context";
  script_.thrown = Script::Throw::kBadAlloc;
  EXPECT_EQ(kolo_health(context_), KOLO_RESOURCE);
  script_.thrown = Script::Throw::kInt;
  EXPECT_EQ(kolo_health(context_), KOLO_INTERNAL);
  script_.thrown = Script::Throw::kNothing;
  EXPECT_EQ(kolo_health(context_), KOLO_OK);
}

TEST_F(BoundaryTest, CallsAfterShutdownAreRefused) {
  kolo_request request = 17;
  const char* json = nullptr;
  ASSERT_EQ(kolo_shutdown(context_), KOLO_OK);
  EXPECT_EQ(script_.alive, 0);
  EXPECT_EQ(kolo_shutdown(context_), KOLO_NOT_INITIALIZED);
  EXPECT_EQ(allreduce(nullptr), KOLO_NOT_INITIALIZED);
  EXPECT_THAT(kolo_last_error(), HasSubstr("kolo_allreduce: the context has been shut down"));
  EXPECT_EQ(kolo_wait(context_, &request, 0), KOLO_NOT_INITIALIZED);
  EXPECT_EQ(kolo_abort(context_, "late"), KOLO_NOT_INITIALIZED);
  EXPECT_EQ(kolo_health(context_), KOLO_NOT_INITIALIZED);
  EXPECT_EQ(kolo_info(context_, &json), KOLO_NOT_INITIALIZED);
  EXPECT_EQ(kolo_rank(context_), -1);
}

TEST_F(BoundaryTest, ARefusedShutdownLeavesTheContextAlive) {
  script_.shutdown_status = {StatusCode::kWouldDeadlock, "in a callback"};
  EXPECT_EQ(kolo_shutdown(context_), KOLO_WOULD_DEADLOCK);
  EXPECT_EQ(script_.alive, 1);
  EXPECT_EQ(kolo_rank(context_), 1);
  script_.shutdown_status = peer_lost("rank 2 is gone");
  EXPECT_EQ(kolo_shutdown(context_), KOLO_PEER_LOST);
  EXPECT_EQ(script_.alive, 0) << "any other status ends it";
}

TEST_F(BoundaryTest, ShutdownWaitsForTheCallsInside) {
  kolo_request request = KOLO_REQUEST_NULL;
  ASSERT_EQ(allreduce(nullptr, &request), KOLO_OK);
  kolo_status waited = KOLO_OK;
  int alive_after_wait = -1;
  std::thread waiter([&] {
    waited = kolo_wait(context_, &request, KOLO_FOREVER);
    alive_after_wait = script_.alive;
  });
  std::thread caller([&] {  // hammers the door while it closes
    while (kolo_rank(context_) == 1) {
    }
  });
  while (!script_.is_waiting) std::this_thread::yield();
  EXPECT_EQ(kolo_shutdown(context_), KOLO_OK);
  waiter.join();
  caller.join();
  EXPECT_EQ(waited, KOLO_ABORTED);
  EXPECT_GE(alive_after_wait, 0);
}

TEST_F(BoundaryTest, ASecondInitOfTheSameRankIsRefused) {
  kolo_context* second = context_;
  EXPECT_EQ(kolo_init(nullptr, &second), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(second, nullptr);
  EXPECT_THAT(kolo_last_error(), HasSubstr("already is rank 0"));
  kolo_config* config = nullptr;
  ASSERT_EQ(kolo_config_create(&config), KOLO_OK);
  ASSERT_EQ(kolo_config_set(config, "job", "another"), KOLO_OK);
  ASSERT_EQ(kolo_init(config, &second), KOLO_OK) << kolo_last_error();
  kolo_config_destroy(config);
  EXPECT_EQ(script_.alive, 2);
  EXPECT_EQ(kolo_shutdown(second), KOLO_OK);
  script_.is_shut_down = false;
  ASSERT_EQ(kolo_shutdown(context_), KOLO_OK);
  ASSERT_EQ(kolo_init(nullptr, &context_), KOLO_OK) << "again, after shutdown";
  script_.is_shut_down = false;
}

TEST_F(BoundaryTest, AFailedInitLeavesNothingBehind) {
  ASSERT_EQ(kolo_shutdown(context_), KOLO_OK);
  script_.is_shut_down = false;
  script_.create_status = timed_out("rank 3 is missing");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(kolo_init(nullptr, &context_), KOLO_TIMED_OUT);
    EXPECT_EQ(context_, nullptr);
  }
  EXPECT_EQ(kolo_init_abi(nullptr, &context_, KOLO_ABI_VERSION + 1), KOLO_UNSUPPORTED);
  EXPECT_EQ(kolo_init(nullptr, nullptr), KOLO_INVALID_ARGUMENT);
  setenv("KOLO_RANK", "0", 1);
  EXPECT_EQ(kolo_init(nullptr, &context_), KOLO_INVALID_ARGUMENT);
  EXPECT_THAT(kolo_last_error(), HasSubstr("KOLO_SIZE"));
}

TEST_F(BoundaryTest, AForkedChildIsToldSo) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool is_refused =
        script_.closed_in_child == 1 && allreduce(nullptr) == KOLO_NOT_INITIALIZED &&
        std::strstr(kolo_last_error(), "fork") != nullptr &&
        kolo_shutdown(context_) == KOLO_NOT_INITIALIZED && kolo_rank(context_) == -1;
    kolo_context* second = nullptr;
    const bool is_told = kolo_init(nullptr, &second) == KOLO_INVALID_ARGUMENT &&
                         std::strstr(kolo_last_error(), "let the child exec") != nullptr;
    ::_exit(is_refused && is_told ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(kolo_rank(context_), 1) << "the parent goes on";
  EXPECT_EQ(script_.closed_in_child, 0);
}

TEST_F(BoundaryTest, NullHandlesAreRefused) {
  std::int32_t done = 0;
  EXPECT_EQ(kolo_barrier(nullptr, nullptr, nullptr), KOLO_INVALID_ARGUMENT);
  EXPECT_THAT(kolo_last_error(), HasSubstr("kolo_barrier: the context is null"));
  EXPECT_EQ(kolo_shutdown(nullptr), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_size(nullptr), -1);
  EXPECT_EQ(kolo_info(context_, nullptr), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_wait(context_, nullptr, 0), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_test(context_, nullptr, &done), KOLO_INVALID_ARGUMENT);
  EXPECT_THAT(kolo_last_error(), HasSubstr("request is null"));
  kolo_request request = KOLO_REQUEST_NULL;
  EXPECT_EQ(kolo_test(context_, &request, nullptr), KOLO_INVALID_ARGUMENT);
  EXPECT_STREQ(kolo_last_error(), "invalid argument: kolo_test: done is null");
  EXPECT_EQ(kolo_wait_all(context_, nullptr, 1, 0), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_start(context_, nullptr, 1), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_request_free(context_, nullptr), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_config_create(nullptr), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_config_destroy(nullptr), KOLO_OK);
}

TEST_F(BoundaryTest, ConfigurationByKeyAndEnvironment) {
  kolo_config* config = nullptr;
  const char* value = nullptr;
  ASSERT_EQ(kolo_config_create(&config), KOLO_OK);
  setenv("KOLO_STREAMS", "3", 1);
  ASSERT_EQ(kolo_config_get(config, "streams", &value), KOLO_OK);
  EXPECT_STREQ(value, "3");
  ASSERT_EQ(kolo_config_set(config, "streams", "4"), KOLO_OK);
  ASSERT_EQ(kolo_config_get(config, "streams", &value), KOLO_OK);
  EXPECT_STREQ(value, "4");
  ASSERT_EQ(kolo_config_get(nullptr, "streams", &value), KOLO_OK);
  EXPECT_STREQ(value, "3");
  EXPECT_EQ(kolo_config_get(config, "stream", &value), KOLO_INVALID_ARGUMENT);
  EXPECT_THAT(kolo_last_error(), HasSubstr("did you mean \"streams\""));
  EXPECT_EQ(kolo_config_set(config, "streams", "0"), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_config_set(config, nullptr, "0"), KOLO_INVALID_ARGUMENT);
  kolo_config_destroy(config);
}

TEST_F(BoundaryTest, UnknownVariablesAreWarnedOfThroughTheLogCallback) {
  ASSERT_EQ(kolo_shutdown(context_), KOLO_OK);
  script_.is_shut_down = false;
  std::string lines;
  kolo_config* config = nullptr;
  ASSERT_EQ(kolo_config_create(&config), KOLO_OK);
  ASSERT_EQ(kolo_set_log_callback(
                config,
                [](kolo_log_level level, const char* text, void* user) {
                  EXPECT_EQ(level, KOLO_LOG_WARNING);
                  *static_cast<std::string*>(user) += text;
                },
                &lines),
            KOLO_OK);
  setenv("KOLO_STREEMS", "3", 1);
  ASSERT_EQ(kolo_init(config, &context_), KOLO_OK);
  EXPECT_THAT(lines, HasSubstr("KOLO_STREEMS"));
  kolo_config_destroy(config);
}

TEST_F(BoundaryTest, TheErrorIsTheThreadsOwn) {
  ASSERT_EQ(kolo_barrier(nullptr, nullptr, nullptr), KOLO_INVALID_ARGUMENT);
  std::thread([] { EXPECT_STREQ(kolo_last_error(), ""); }).join();
  ASSERT_EQ(kolo_health(context_), KOLO_OK);
  EXPECT_THAT(kolo_last_error(), HasSubstr("kolo_barrier")) << "a success leaves it alone";
}

// Made before kolo's own texts of its thread, so that it ends after them: as what a program holds
// in static variables, which the main thread ends last of all.
struct LateCaller {
  std::string* seen = nullptr;
  ~LateCaller() {
    if (seen == nullptr) return;
    *seen = std::string("[") + kolo_last_error() + "]";
    kolo_barrier(nullptr, nullptr, nullptr);
    *seen += kolo_last_error();
  }
};

TEST_F(BoundaryTest, CallsAtTheVeryEndOfAThread) {
  std::string seen;
  std::thread([&] {
    thread_local LateCaller late;
    late.seen = &seen;
    const std::string key(300, 'k');  // whose text is long
    EXPECT_EQ(kolo_config_get(nullptr, key.c_str(), nullptr), KOLO_INVALID_ARGUMENT);
    const char* value = nullptr;
    EXPECT_EQ(kolo_config_get(nullptr, key.c_str(), &value), KOLO_INVALID_ARGUMENT);
  }).join();
  EXPECT_THAT(seen, testing::StartsWith("[]invalid argument: kolo_barrier: the context is null"));
}

}  // namespace
}  // namespace kolo::internal
