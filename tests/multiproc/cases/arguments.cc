// Bad input on one rank or on all: a typed error where it was made, one for those who called
// rightly, and a job that goes on unharmed.
#include <functional>
#include <limits>
#include <string>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

struct BadCall {
  const char* name;
  std::function<kolo_status(const Job&, float*, const kolo_options&)> call;
  const char* said;  // in the text, on all ranks
};

kolo_status reduce_raw(const Job& job, const void* input, void* output, std::size_t count,
                       int dtype, int op, const kolo_options& options) {
  return kolo_allreduce(job.context(), input, output, count, static_cast<kolo_dtype>(dtype),
                        static_cast<kolo_op>(op), &options, nullptr);
}

// Of pointers, types and counts.
std::vector<BadCall> bad_tensors() {
  return {
      {"input",
       [](const Job& job, float* p, const kolo_options& o) {
         return reduce_raw(job, nullptr, p, 4, KOLO_FLOAT32, KOLO_SUM, o);
       },
       "null"},
      {"output",
       [](const Job& job, float* p, const kolo_options& o) {
         return reduce_raw(job, p, nullptr, 4, KOLO_FLOAT32, KOLO_SUM, o);
       },
       "null"},
      {"dtype",
       [](const Job& job, float* p, const kolo_options& o) {
         return reduce_raw(job, p, p, 4, 99, KOLO_SUM, o);
       },
       "99"},
      {"op",
       [](const Job& job, float* p, const kolo_options& o) {
         return reduce_raw(job, p, p, 4, KOLO_FLOAT32, 77, o);
       },
       "77"},
      {"fp8",
       [](const Job& job, float* p, const kolo_options& o) {
         return reduce_raw(job, p, p, 4, KOLO_FLOAT8_E4M3, KOLO_SUM, o);
       },
       "8-bit floats"},
      {"bool avg",
       [](const Job& job, float* p, const kolo_options& o) {
         return reduce_raw(job, p, p, 4, KOLO_BOOL, KOLO_AVG, o);
       },
       "avg"},
      {"count",
       [](const Job& job, float* p, const kolo_options& o) {
         return reduce_raw(job, p, p, std::numeric_limits<std::size_t>::max() / 2, KOLO_FLOAT32,
                           KOLO_SUM, o);
       },
       "overflow"},
      {"overlap",
       [](const Job& job, float* p, const kolo_options& o) {
         return reduce_raw(job, p, p + 1, 3, KOLO_FLOAT32, KOLO_SUM, o);
       },
       "overlap"},
  };
}

std::vector<BadCall> bad_calls() {
  std::vector<BadCall> calls = bad_tensors();
  const std::vector<BadCall> others = {
      {"shape",
       [](const Job& job, float* p, const kolo_options& o) {
         kolo_options options = o;
         const std::int64_t shape[] = {3, 5};
         options.shape = shape;
         options.ndim = 2;
         return reduce_raw(job, p, p, 4, KOLO_FLOAT32, KOLO_SUM, options);
       },
       "15"},
      {"prescale",
       [](const Job& job, float* p, const kolo_options& o) {
         kolo_options options = o;
         options.prescale = std::numeric_limits<double>::quiet_NaN();
         return reduce_raw(job, p, p, 4, KOLO_FLOAT32, KOLO_SUM, options);
       },
       "prescale"},
      {"gather",
       [](const Job& job, float*, const kolo_options& o) {
         return kolo_allgather(job.context(), nullptr, nullptr, 2, KOLO_FLOAT32, &o, nullptr);
       },
       "null"},
      {"root",
       [](const Job& job, float* p, const kolo_options& o) {
         return kolo_broadcast(job.context(), p, p, 4, KOLO_FLOAT32, 1000, &o, nullptr);
       },
       "root 1000"},
  };
  calls.insert(calls.end(), others.begin(), others.end());
  return calls;
}

// The bad rank calls wrongly, the others rightly: they are told who refused it and why.
int bad_on_one() {
  const Job job;
  for (int bad_rank = 0; bad_rank < job.size(); ++bad_rank) {
    for (const BadCall& bad : bad_calls()) {
      std::vector<float> values(8, 3.0F);
      const std::string name = std::string("bad ") + bad.name;
      const kolo_options options = named(name.c_str());
      const Stopwatch watch;
      if (job.rank() == bad_rank) {
        expect_status(bad.call(job, values.data(), options), KOLO_INVALID_ARGUMENT, name);
        expect_text({"\"" + name + "\"", bad.said});
      } else {
        expect_status(
            reduce_raw(job, values.data(), values.data(), 4, KOLO_FLOAT32, KOLO_SUM, options),
            KOLO_MISMATCH, name);
        expect_text(
            {"'" + name + "'", "rank " + std::to_string(bad_rank) + " refused it", bad.said});
      }
      watch.expect_between(0, 1, name);
      for (const float value : values) KOLO_EXPECT(value == 3.0F);
      KOLO_EXPECT(job.reduce(name.c_str(), values)[0] == 3.0F * static_cast<float>(job.size()));
      job.probe();
    }
  }
  job.shutdown();
  return 0;
}

int bad_on_all() {
  const Job job;
  for (const BadCall& bad : bad_calls()) {
    std::vector<float> values(8, 3.0F);
    const std::string name = std::string("bad ") + bad.name;
    expect_status(bad.call(job, values.data(), named(name.c_str())), KOLO_INVALID_ARGUMENT, name);
    expect_text({bad.said});
    for (const float value : values) KOLO_EXPECT(value == 3.0F);
  }
  job.probe();
  for (const BadCall& bad : bad_calls()) {  // the names are free
    const std::string name = std::string("bad ") + bad.name;
    job.reduce(name.c_str(), std::vector<float>{1.0F});
  }
  job.shutdown();
  return 0;
}

// A group with one bad member on rank 0: it fails as a whole on all ranks, nothing partly done.
int bad_member() {
  const Job job;
  std::vector<float> a = {1.0F};
  std::vector<float> b = {2.0F};
  const kolo_options options = named("b");
  for (int round = 0; round < 3; ++round) {  // rank 0 runs ahead
    expect_status(kolo_group_begin(job.context(), "G"), KOLO_OK, "kolo_group_begin");
    const kolo_request first = job.submit("a", a);
    kolo_request group = KOLO_REQUEST_NULL;
    if (job.rank() == 0) {
      kolo_request second = 1;
      expect_status(kolo_allreduce(job.context(), nullptr, b.data(), 1, KOLO_FLOAT32, KOLO_SUM,
                                   &options, &second),
                    KOLO_INVALID_ARGUMENT, "the bad member");
      KOLO_EXPECT(second == KOLO_REQUEST_NULL);
      expect_status(kolo_group_end(job.context(), &group), KOLO_INVALID_ARGUMENT, "kolo_group_end");
      expect_text({"\"b\"", "null"});
      KOLO_EXPECT(group == KOLO_REQUEST_NULL);
      job.finish_soon(first, KOLO_INVALID_ARGUMENT);
    } else {
      const kolo_request second = job.submit("b", b);
      expect_status(kolo_group_end(job.context(), &group), KOLO_OK, "kolo_group_end");
      for (const kolo_request request : {group, first, second}) {
        job.finish_soon(request, KOLO_MISMATCH);
        expect_text({"'G'", "rank 0 refused it", "null"});
      }
    }
    KOLO_EXPECT(a[0] == 1.0F && b[0] == 2.0F);
  }
  job.probe();
  job.shutdown();
  return 0;
}

// What the options refuse is told like any other refusal; what cannot be told harms nobody.
int bad_options() {
  const Job job;
  float value = 1.0F;
  kolo_options scaled = KOLO_OPTIONS_INIT;
  if (job.rank() == 0) scaled.prescale = 0.0;
  const auto unnamed = [&](const kolo_options& options) {
    return kolo_allreduce(job.context(), &value, &value, 1, KOLO_FLOAT32, KOLO_SUM, &options,
                          nullptr);
  };
  expect_status(unnamed(scaled), job.rank() == 0 ? KOLO_INVALID_ARGUMENT : KOLO_MISMATCH,
                "an unnamed call with prescale 0 on rank 0");
  expect_text({"prescale"});
  KOLO_EXPECT(value == 1.0F);
  value = static_cast<float>(job.rank() + 10);
  expect_status(unnamed(KOLO_OPTIONS_INIT), KOLO_OK, "the next unnamed call");
  KOLO_EXPECT(value == static_cast<float>(10 * job.size() + job.size() * (job.size() - 1) / 2));

  std::vector<float> a = {1.0F};
  scaled.name = "b";
  expect_status(kolo_group_begin(job.context(), "G"), KOLO_OK, "kolo_group_begin");
  static_cast<void>(job.submit("a", a));
  expect_status(unnamed(scaled), job.rank() == 0 ? KOLO_INVALID_ARGUMENT : KOLO_OK, "a member");
  expect_status(kolo_group_end(job.context(), nullptr),
                job.rank() == 0 ? KOLO_INVALID_ARGUMENT : KOLO_MISMATCH, "kolo_group_end");
  KOLO_EXPECT(a[0] == 1.0F);

  const kolo_options big = named("big");
  const std::size_t count = job.rank() == 1 ? std::size_t{1} << 61 : 1;
  expect_status(
      kolo_allreduce(job.context(), &value, &value, count, KOLO_INT8, KOLO_SUM, &big, nullptr),
      KOLO_MISMATCH, "a count of 2^61 on rank 1");
  const std::string endless(std::size_t{70} << 20, 'n');
  const kolo_options unnameable = named(endless.c_str());
  if (job.rank() == 1) {
    expect_status(unnamed(unnameable), KOLO_INVALID_ARGUMENT, "a name of 70 MiB");
    expect_status(kolo_group_begin(job.context(), "#0"), KOLO_INVALID_ARGUMENT, "a group '#0'");
  }
  job.probe();
  job.shutdown();
  return 0;
}

// Names, handles, options of one call, second inits.
int bad_handles() {
  const Job job;
  kolo_context* other = nullptr;
  const Stopwatch watch;
  expect_status(kolo_init(nullptr, &other), KOLO_INVALID_ARGUMENT, "a second kolo_init");
  expect_text({"already is rank " + std::to_string(job.rank())});
  KOLO_EXPECT(other == nullptr);
  kolo_request request = 123456;
  std::int32_t done = 7;
  expect_status(kolo_wait(job.context(), &request, 0), KOLO_INVALID_ARGUMENT, "an unknown request");
  expect_status(kolo_test(job.context(), &request, &done), KOLO_INVALID_ARGUMENT, "an unknown one");
  expect_status(kolo_wait(job.context(), nullptr, 0), KOLO_INVALID_ARGUMENT, "a null request");
  expect_status(kolo_group_end(job.context(), nullptr), KOLO_INVALID_ARGUMENT, "no group open");
  float value = 1.0F;
  const std::string long_name(4097, 'n');
  for (const std::string& name : {std::string("#1"), long_name}) {
    const kolo_options options = named(name.c_str());
    expect_status(
        kolo_allreduce(job.context(), &value, &value, 1, KOLO_FLOAT32, KOLO_SUM, &options, nullptr),
        KOLO_INVALID_ARGUMENT, "a bad name");
  }
  const std::string longest(4096, 'n');
  KOLO_EXPECT(job.reduce(longest.c_str(), std::vector<float>{1.0F})[0] ==
              static_cast<float>(job.size()));
  kolo_options options = named("later set");
  options.pset = 3;
  expect_status(
      kolo_allreduce(job.context(), &value, &value, 1, KOLO_FLOAT32, KOLO_SUM, &options, nullptr),
      KOLO_INVALID_ARGUMENT, "a process set that is not there");
  expect_text({"process set 3"});
  options = named("zeroed");
  options.struct_size = 0;
  expect_status(kolo_barrier(job.context(), &options, nullptr), KOLO_INVALID_ARGUMENT, "size 0");
  watch.expect_between(0, 2, "all of it");
  job.probe();
  job.shutdown();
  expect_status(
      kolo_allreduce(job.context(), &value, &value, 1, KOLO_FLOAT32, KOLO_SUM, nullptr, nullptr),
      KOLO_NOT_INITIALIZED, "a call after shutdown");
  KOLO_EXPECT(value == 1.0F && kolo_rank(job.context()) == -1);
  return 0;
}

}  // namespace

std::vector<Situation> argument_situations() {
  return {{"bad-on-one", bad_on_one},
          {"bad-on-all", bad_on_all},
          {"bad-member", bad_member},
          {"bad-options", bad_options},
          {"bad-handles", bad_handles}};
}

}  // namespace kolo::cases
