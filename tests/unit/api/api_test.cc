// The C API in a job of one, over the real library: every kind of bad input gets a typed error that
// names what and the cure, harms nothing, and the job goes on.
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kolo/kolo.hpp"

namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class ApiTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"KOLO_RANK", "KOLO_SIZE", "RANK", "WORLD_SIZE"}) unsetenv(name);
    setenv("KOLO_NOTICE", "0", 1);
    ASSERT_EQ(kolo_init(nullptr, &context_), KOLO_OK) << kolo_last_error();
  }
  void TearDown() override {
    // After whatever the case did, the job still works.
    if (kolo_rank(context_) < 0) return;
    float value = 3;
    EXPECT_EQ(kolo_allreduce(context_, &value, &value, 1, KOLO_FLOAT32, KOLO_SUM, nullptr, nullptr),
              KOLO_OK)
        << kolo_last_error();
    EXPECT_EQ(value, 3);
    EXPECT_EQ(kolo_shutdown(context_), KOLO_OK) << kolo_last_error();
  }

  struct Call {
    kolo_context* context = nullptr;
    const void* input = nullptr;
    void* output = nullptr;
    std::size_t count = 4;
    kolo_dtype dtype = KOLO_FLOAT32;
    kolo_op op = KOLO_SUM;
    std::int32_t root = 0;
    kolo_options options = KOLO_OPTIONS_INIT;
  };
  Call call() {
    Call made;
    made.context = context_;
    made.input = input_.data();
    made.output = output_.data();
    made.options.name = "tensor-7";
    return made;
  }
  static kolo_status allreduce(const Call& c, kolo_request* r = nullptr) {
    return kolo_allreduce(c.context, c.input, c.output, c.count, c.dtype, c.op, &c.options, r);
  }
  static kolo_status allgather(const Call& c, kolo_request* r = nullptr) {
    return kolo_allgather(c.context, c.input, c.output, c.count, c.dtype, &c.options, r);
  }
  static kolo_status broadcast(const Call& c, kolo_request* r = nullptr) {
    return kolo_broadcast(c.context, c.input, c.output, c.count, c.dtype, c.root, &c.options, r);
  }
  // Blocking and not, the call is refused with `words`, and the output is as it was.
  void expect_refused(kolo_status (*submit)(const Call&, kolo_request*), const Call& c,
                      const std::string& words) {
    kolo_request request = 1;
    for (kolo_request* r : {static_cast<kolo_request*>(nullptr), &request}) {
      EXPECT_EQ(submit(c, r), KOLO_INVALID_ARGUMENT) << words;
      EXPECT_THAT(kolo_last_error(), HasSubstr(words));
    }
    EXPECT_EQ(request, KOLO_REQUEST_NULL);
    EXPECT_THAT(output_, Each(-1.0f));
  }

  kolo_context* context_ = nullptr;
  std::vector<float> input_ = {1, 2, 3, 4};
  std::vector<float> output_ = std::vector<float>(8, -1.0f);
};

TEST_F(ApiTest, AJobOfOne) {
  EXPECT_EQ(kolo_rank(context_), 0);
  EXPECT_EQ(kolo_size(context_), 1);
  EXPECT_EQ(kolo_local_rank(context_), 0);
  EXPECT_EQ(kolo_local_size(context_), 1);
  EXPECT_EQ(kolo_health(context_), KOLO_OK);
  const char* json = nullptr;
  ASSERT_EQ(kolo_info(context_, &json), KOLO_OK);
  EXPECT_EQ(json[0], '{');
  for (auto* submit : {&allreduce, &allgather, &broadcast}) {
    output_.assign(8, -1.0f);
    ASSERT_EQ(submit(call(), nullptr), KOLO_OK) << kolo_last_error();
    EXPECT_THAT(output_, ElementsAre(1, 2, 3, 4, -1, -1, -1, -1));
  }
  EXPECT_EQ(kolo_barrier(context_, nullptr, nullptr), KOLO_OK);
}

TEST_F(ApiTest, BuildInfoSaysWhatThereIs) {
  const auto info = nlohmann::json::parse(kolo_build_info());
  EXPECT_EQ(info.at("version"), kolo_version());
  EXPECT_EQ(info.at("abi"), KOLO_ABI_VERSION);
  EXPECT_THAT(info.at("roads").get<std::vector<std::string>>(),
              testing::IsSupersetOf({"shm", "tcp"}));
  EXPECT_TRUE(info.at("mpi").is_boolean());
  for (const char* name : {"cuda", "nccl"}) {
    const auto& library = info.at(name);
    if (library.at("found").get<bool>()) {
      EXPECT_THAT(library.at("path").get<std::string>(), testing::HasSubstr("lib"));
      EXPECT_THAT(library.at("version").get<std::string>(), testing::HasSubstr("."));
    } else {
      EXPECT_THAT(library.at("why").get<std::string>(), testing::HasSubstr("KOLO_"));
    }
  }
  EXPECT_TRUE(info.at("cpu").is_object());
  EXPECT_EQ(kolo_build_info(), kolo_build_info());  // valid for ever: the same text
}

TEST_F(ApiTest, NullPointers) {
  Call c = call();
  c.input = nullptr;
  for (auto* submit : {&allreduce, &allgather, &broadcast}) {
    expect_refused(submit, c, "the input is null");
  }
  c = call();
  c.output = nullptr;
  for (auto* submit : {&allreduce, &allgather, &broadcast}) {
    expect_refused(submit, c, "the output is null");
  }
}

TEST_F(ApiTest, UnknownNumbers) {
  for (const int number : {-1, 15, 12345}) {
    Call c = call();
    c.dtype = static_cast<kolo_dtype>(number);
    for (auto* submit : {&allreduce, &allgather, &broadcast}) {
      expect_refused(submit, c, "unknown data type " + std::to_string(number));
    }
    c = call();
    c.op = static_cast<kolo_op>(number);
    expect_refused(&allreduce, c, "unknown reduction operator " + std::to_string(number));
    c = call();
    c.root = number;
    expect_refused(&broadcast, c, "root " + std::to_string(number));
  }
}

TEST_F(ApiTest, OperatorsThatATypeDoesNotHave) {
  Call c = call();
  c.dtype = KOLO_BOOL;
  c.op = KOLO_AVG;
  expect_refused(&allreduce, c, "avg is not defined on bool");
  c.dtype = KOLO_FLOAT8_E5M2;
  c.op = KOLO_MAX;
  expect_refused(&allreduce, c, "max is not defined on f8e5m2");
}

TEST_F(ApiTest, CountsThatOverflow) {
  Call c = call();
  c.count = std::numeric_limits<std::size_t>::max() / 2;
  for (auto* submit : {&allreduce, &allgather, &broadcast}) expect_refused(submit, c, "overflows");
}

TEST_F(ApiTest, ScalesShapesAndNames) {
  Call c = call();
  c.options.prescale = std::numeric_limits<double>::quiet_NaN();
  expect_refused(&allreduce, c, "prescale");
  c = call();
  c.dtype = KOLO_INT32;
  c.options.postscale = 0.5;
  expect_refused(&allreduce, c, "scales need");
  const std::int64_t shape[] = {2, 3};
  c = call();
  c.options.shape = shape;
  c.options.ndim = 2;
  expect_refused(&allreduce, c, "[2, 3] holds 6 elements");
  c.options.ndim = 0;
  c.count = 1;
  expect_refused(&allgather, c, "scalar");
  c = call();
  c.options.name = "#7";
  expect_refused(&allreduce, c, "'#'");
  const std::string long_name(5000, 'n');
  c.options.name = long_name.c_str();
  expect_refused(&allreduce, c, "5000 bytes");
}

TEST_F(ApiTest, EveryErrorNamesTheTensor) {
  Call c = call();
  c.input = output_.data() + 1;  // overlaps without being equal
  expect_refused(&allreduce, c, "tensor-7");
  EXPECT_THAT(kolo_last_error(), AllOf(HasSubstr("overlap"), HasSubstr("invalid argument")));
}

TEST_F(ApiTest, NothingToDoIsDone) {
  Call c = call();
  c.count = 0;
  c.input = c.output = nullptr;
  for (auto* submit : {&allreduce, &allgather, &broadcast}) {
    EXPECT_EQ(submit(c, nullptr), KOLO_OK) << kolo_last_error();
  }
  kolo_request request = KOLO_REQUEST_NULL;
  std::int32_t done = 0;
  EXPECT_EQ(kolo_wait(context_, &request, KOLO_FOREVER), KOLO_OK);
  EXPECT_EQ(kolo_test(context_, &request, &done), KOLO_OK);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(kolo_wait_all(context_, nullptr, 0, KOLO_FOREVER), KOLO_OK);
}

TEST_F(ApiTest, StrangersAreNoRequests) {
  kolo_request stranger = 0x7654321;
  std::int32_t done = 0;
  EXPECT_EQ(kolo_wait(context_, &stranger, 0), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_test(context_, &stranger, &done), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(kolo_request_free(context_, &stranger), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(stranger, 0x7654321u);
}

TEST_F(ApiTest, GroupsOpenAndClose) {
  EXPECT_EQ(kolo_group_end(context_, nullptr), KOLO_INVALID_ARGUMENT);
  ASSERT_EQ(kolo_group_begin(context_, "g"), KOLO_OK) << kolo_last_error();
  EXPECT_EQ(kolo_group_begin(context_, "h"), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(allreduce(call()), KOLO_OK);
  EXPECT_EQ(kolo_group_end(context_, nullptr), KOLO_OK) << kolo_last_error();
  EXPECT_THAT(output_, ElementsAre(1, 2, 3, 4, -1, -1, -1, -1));
}

TEST_F(ApiTest, ASecondInitAndLateCalls) {
  kolo_context* second = nullptr;
  EXPECT_EQ(kolo_init(nullptr, &second), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(second, nullptr);
  ASSERT_EQ(kolo_shutdown(context_), KOLO_OK);
  EXPECT_EQ(allreduce(call()), KOLO_NOT_INITIALIZED);
  EXPECT_EQ(kolo_shutdown(context_), KOLO_NOT_INITIALIZED);
}

TEST_F(ApiTest, MalformedEnvironment) {
  ASSERT_EQ(kolo_shutdown(context_), KOLO_OK);
  setenv("KOLO_FUSION_THRESHOLD_BYTES", "lots", 1);
  kolo_context* refused = nullptr;
  EXPECT_EQ(kolo_init(nullptr, &refused), KOLO_INVALID_ARGUMENT);
  EXPECT_THAT(kolo_last_error(), HasSubstr("KOLO_FUSION_THRESHOLD_BYTES"));
  unsetenv("KOLO_FUSION_THRESHOLD_BYTES");
}

TEST_F(ApiTest, TheCppSide) {
  kolo::Context context(kolo::Config().set("job", "another"));
  std::vector<float> data = {1, 2};
  context.allreduce(std::span(data), kolo::Op::avg);
  EXPECT_THAT(data, ElementsAre(1, 2));
  kolo::Request request = context.allreduce_async(std::span(data), kolo::Op::sum,
                                                  kolo::Options().name("x").prescale(2));
  request.wait();
  EXPECT_FALSE(request);
  EXPECT_THAT(data, ElementsAre(2, 4));
  kolo::Request persistent = context.allreduce_async(
      std::span(data), kolo::Op::sum, kolo::Options().name("p").prescale(2).persistent());
  for (int i = 0; i < 3; ++i) {
    persistent.start();
    persistent.wait();
    EXPECT_TRUE(persistent);
  }
  EXPECT_THAT(data, ElementsAre(16, 32));
  kolo::Group group = context.group("g");
  context.allreduce(data, kolo::Op::sum);
  group.end();
  try {
    context.broadcast(std::span(data), 9);
    FAIL() << "a root that is no rank";
  } catch (const kolo::Error& error) {
    EXPECT_EQ(error.status(), KOLO_INVALID_ARGUMENT);
    EXPECT_THAT(error.what(), HasSubstr("root 9"));
  }
}

kolo_status status_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const kolo::Error& error) {
    return error.status();
  }
  return KOLO_OK;
}

TEST_F(ApiTest, CppBuffersAreVectorsArraysAndSpans) {
  kolo::Context context(kolo::Config().set("job", "another"));
  const std::vector<float> in = {1, 2};
  std::vector<float> a = {3, 4};
  std::vector<float> out(2);
  context.allreduce(std::span(a), std::span(out), kolo::Op::sum);
  EXPECT_THAT(out, ElementsAre(3, 4));
  context.allreduce(in, out, kolo::Op::sum, kolo::Options().name("n"));
  EXPECT_THAT(out, ElementsAre(1, 2));
  context.allreduce_async(std::span<const float>(a), std::span(out), kolo::Op::max).wait();
  EXPECT_THAT(out, ElementsAre(3, 4));
  context.allreduce_async(out, kolo::Op::sum, kolo::Options().prescale(2)).wait();
  EXPECT_THAT(out, ElementsAre(6, 8));
  std::array<float, 2> array = {};
  context.allgather(in, array);
  EXPECT_THAT(array, ElementsAre(1, 2));
  float plain[2] = {};
  context.allgather_async(std::span(a), plain).wait();
  EXPECT_THAT(plain, ElementsAre(3, 4));
  context.broadcast(plain, 0);
  context.broadcast_async(a, 0).wait();
  out.resize(3);
  EXPECT_EQ(status_of([&] { context.allreduce(in, out, kolo::Op::sum); }), KOLO_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&] { context.allgather(in, out); }), KOLO_INVALID_ARGUMENT);
}

TEST_F(ApiTest, CppCallsAfterShutdown) {
  kolo::Context context(kolo::Config().set("job", "another"));
  std::vector<float> data = {1, 2};
  context.shutdown();
  EXPECT_EQ(context.rank(), -1);
  for (const kolo_status status : {
           status_of([&] { context.shutdown(); }),
           status_of([&] { context.allreduce(data, kolo::Op::sum); }),
           status_of([&] { context.allgather(std::span(data).first(1), data); }),
           status_of([&] { context.barrier(); }),
           status_of([&] { context.group().end(); }),
           status_of([&] { context.info(); }),
       }) {
    EXPECT_EQ(status, KOLO_NOT_INITIALIZED);
  }
}

}  // namespace
