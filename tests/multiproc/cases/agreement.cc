// S01 to S06: agreement between ranks about names, shapes, types and order.
#include <array>
#include <cstdlib>
#include <string>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

int s01() {
  const Job job;
  job.expect_size(2);
  const std::int64_t shape[] = {job.rank() == 0 ? 100 : 200, 2560};
  std::vector<float> ones(static_cast<std::size_t>(shape[0] * shape[1]), 1.0F);
  kolo_options options = named("g");
  options.shape = shape;
  options.ndim = 2;
  const kolo_request request = job.submit_raw(options, ones.data(), ones.size(), KOLO_FLOAT32);
  job.finish_soon(request, KOLO_MISMATCH);
  expect_text({"'g'", "(100,2560) on rank 0", "(200,2560) on rank 1"});
  for (const float value : ones) KOLO_EXPECT(value == 1.0F);
  job.probe();
  job.shutdown();
  return 0;
}

int s02() {
  const Job job;
  job.expect_size(3);
  constexpr std::uint16_t kTenthAsBf16 = 0x3DCD;
  std::uint16_t half = kTenthAsBf16;
  float whole = 0.1F;
  const kolo_request request = job.rank() == 0
                                   ? job.submit_raw(named("x"), &half, 1, KOLO_BFLOAT16)
                                   : job.submit_raw(named("x"), &whole, 1, KOLO_FLOAT32);
  job.finish_soon(request, KOLO_MISMATCH);
  expect_text({"'x'", "bf16 on rank 0", "f32 on ranks 1, 2"});
  KOLO_EXPECT(half == kTenthAsBf16 && whole == 0.1F);
  job.probe();
  job.shutdown();
  return 0;
}

int s03() {
  const Job job;
  job.expect_size(3);
  std::vector<float> input(25, 1.0F);
  std::vector<float> output(75, 2.0F);
  const kolo_options options = named("t");
  kolo_request request = KOLO_REQUEST_NULL;
  kolo_status status = KOLO_INTERNAL;
  switch (job.rank()) {
    case 0:
      status = kolo_allreduce(job.context(), input.data(), output.data(), 25, KOLO_FLOAT32,
                              KOLO_SUM, &options, &request);
      break;
    case 1:
      status = kolo_allgather(job.context(), input.data(), output.data(), 25, KOLO_FLOAT32,
                              &options, &request);
      break;
    default:
      status = kolo_broadcast(job.context(), input.data(), output.data(), 25, KOLO_FLOAT32, 0,
                              &options, &request);
  }
  expect_status(status, KOLO_OK, "the submission");
  job.finish_soon(request, KOLO_MISMATCH);
  expect_text({"'t'", "allreduce on rank 0", "allgather on rank 1", "broadcast on rank 2"});
  for (const float value : input) KOLO_EXPECT(value == 1.0F);
  for (const float value : output) KOLO_EXPECT(value == 2.0F);
  job.probe();
  job.shutdown();
  return 0;
}

// Ends with the status's number, as a program that gives up on an error would.
int s04() {
  const Job job;
  job.expect_size(2);
  std::vector<float> values = {1.0F};
  const char* mine = job.rank() == 0 ? "m/w" : "m_1/w";
  const Stopwatch watch;
  job.finish(job.submit(mine, values), KOLO_TIMED_OUT);
  watch.expect_between(4.8, 6, "the stalled wait ended");
  expect_text(
      {std::string("'") + mine + "'", job.rank() == 0 ? "missing on rank 1" : "missing on rank 0"});
  KOLO_EXPECT(values[0] == 1.0F);
  job.probe();  // the stalled operation failed, and nothing else
  job.shutdown();
  return KOLO_TIMED_OUT;
}

int s05() {
  const Job job;
  job.expect_size(2);
  std::vector<std::int32_t> first = {1};
  std::vector<std::int32_t> second = {2};
  if (job.rank() == 0) {
    const kolo_request request = job.submit("g", first);
    const kolo_options options = named("g");
    kolo_request again = 1;
    const Stopwatch watch;
    expect_status(kolo_allreduce(job.context(), second.data(), second.data(), 1, KOLO_INT32,
                                 KOLO_SUM, &options, &again),
                  KOLO_DUPLICATE_NAME, "the second submission");
    watch.expect_between(0, 0.1, "the second submission was answered");
    expect_text({"g"});
    KOLO_EXPECT(again == KOLO_REQUEST_NULL && second[0] == 2);
    job.finish(request, KOLO_OK);
    KOLO_EXPECT(first[0] == 3);
  } else {
    sleep_ms(200);
    KOLO_EXPECT(job.reduce("g", second)[0] == 3);
  }
  const int times = repetitions(10'000);
  for (std::int32_t i = 0; i < times; ++i) {
    const std::int32_t sum = job.reduce("g", std::vector<std::int32_t>{i + job.rank()})[0];
    KOLO_EXPECT(sum == 2 * i + 1);
  }
  job.shutdown();
  return 0;
}

struct Members {
  std::vector<float> a = std::vector<float>(3, 1.0F);
  std::vector<float> b = std::vector<float>(5, 2.0F);
  std::vector<float> c = std::vector<float>(2, 3.0F);
  std::vector<double> c_wide = std::vector<double>(2, 3.0);

  [[nodiscard]] bool untouched() const {
    return a == std::vector<float>(3, 1.0F) && b == std::vector<float>(5, 2.0F) &&
           c == std::vector<float>(2, 3.0F) && c_wide == std::vector<double>(2, 3.0);
  }
};

// `order`: the members by letter; 'C' is c as f64. The status of the group, which all members'
// requests share.
void run_group(const Job& job, std::string_view order, Members& members, kolo_status want,
               std::initializer_list<std::string_view> text) {
  expect_status(kolo_group_begin(job.context(), "G"), KOLO_OK, "kolo_group_begin");
  std::vector<kolo_request> requests;
  for (const char member : order) {
    if (member == 'a') requests.push_back(job.submit("a", members.a));
    if (member == 'b') requests.push_back(job.submit("b", members.b));
    if (member == 'c') requests.push_back(job.submit("c", members.c));
    if (member == 'C') requests.push_back(job.submit("c", members.c_wide));
  }
  kolo_request group = KOLO_REQUEST_NULL;
  expect_status(kolo_group_end(job.context(), &group), KOLO_OK, "kolo_group_end");
  job.finish_soon(group, want);
  if (want != KOLO_OK) expect_text(text);
  for (const kolo_request request : requests) {
    job.finish_soon(request, want);
    if (want != KOLO_OK) expect_text(text);
  }
}

int s06() {
  const Job job;
  job.expect_size(2);
  const bool first = job.rank() == 0;
  Members exact;
  run_group(job, first ? "abc" : "cab", exact, KOLO_OK, {});
  KOLO_EXPECT(exact.a == std::vector<float>(3, 2.0F) && exact.b == std::vector<float>(5, 4.0F) &&
              exact.c == std::vector<float>(2, 6.0F));
  Members fewer;
  run_group(job, first ? "abc" : "ab", fewer, KOLO_MISMATCH,
            {"'G'", "3 members a, b, c on rank 0", "2 members a, b on rank 1"});
  KOLO_EXPECT(fewer.untouched());
  Members wider;
  run_group(job, first ? "abc" : "abC", wider, KOLO_MISMATCH,
            {"'G'", "'c'", "f32 on rank 0", "f64 on rank 1"});
  KOLO_EXPECT(wider.untouched());
  job.probe();
  job.shutdown();
  return 0;
}

}  // namespace

std::vector<Situation> agreement_situations() {
  return {{"S01", s01}, {"S02", s02}, {"S03", s03}, {"S04", s04}, {"S05", s05}, {"S06", s06}};
}

}  // namespace kolo::cases
