// S18 and S61: much in one call, and many calls; and a tensor of more than 2^31 elements.
#include <string>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

// Minutes rather than seconds, on a busy machine.
void finish_large(const Job& job, kolo_request request) {
  expect_status(kolo_wait(job.context(), &request, 300'000), KOLO_OK, "kolo_wait");
}

// Above 2^31 elements, in place; 2 GiB a rank.
int huge() {
  const Job job;
  job.expect_size(2);
  constexpr std::size_t kCount = (std::size_t{1} << 31) + 3;
  std::vector<std::int8_t> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = static_cast<std::int8_t>(static_cast<int>(i % 61) - 30 * job.rank());
  }
  finish_large(job, job.submit("huge", values));
  for (std::size_t i = 0; i < kCount; ++i) {
    if (values[i] != 2 * static_cast<int>(i % 61) - 30) fail("element " + std::to_string(i));
  }
  job.shutdown();
  return 0;
}

constexpr std::size_t kModulus = 251;

void reduce_large(const Job& job) {
  constexpr std::size_t kCount = (std::size_t{1} << 28) + 4;  // 2 GiB and 32 bytes
  std::vector<double> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<double>(i % kModulus);
  finish_large(job, job.submit("large", values));
  for (std::size_t i = 0; i < kCount; ++i) {
    if (values[i] != static_cast<double>(2 * (i % kModulus))) fail("element " + std::to_string(i));
  }
}

// Of `count` bytes from each rank, in place.
void gather_large(const Job& job, std::size_t count) {
  std::vector<std::uint8_t> values(2 * count, 0xff);
  const std::size_t begin = static_cast<std::size_t>(job.rank()) * count;
  for (std::size_t i = 0; i < count; ++i) {
    values[begin + i] = static_cast<std::uint8_t>((begin + i) % kModulus);
  }
  const kolo_options options = named("gather");
  kolo_request request = KOLO_REQUEST_NULL;
  expect_status(kolo_allgather(job.context(), values.data() + begin, values.data(), count,
                               KOLO_UINT8, &options, &request),
                KOLO_OK, "kolo_allgather");
  finish_large(job, request);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != i % kModulus) fail("byte " + std::to_string(i));
  }
}

int s18() {
  const Job job;
  job.expect_size(2);
  reduce_large(job);
  gather_large(job, long_tests() ? std::size_t{3} << 29 : (std::size_t{1} << 30) + 4);
  job.shutdown();
  return 0;
}

int s61() {
  const Job job;
  job.expect_size(2);
  constexpr int kFirst = 10'000;
  const int steps = long_tests() ? 1'000'000 : 3 * kFirst;
  Holdings before;
  for (int step = 0; step < steps; ++step) {
    const std::string name = "x" + std::to_string(step);
    const std::vector<std::int64_t> sum =
        job.reduce(name.c_str(), std::vector<std::int64_t>{step + job.rank()});
    KOLO_EXPECT(sum[0] == 2 * std::int64_t{step} + 1);
    if (step + 1 == kFirst) before = Holdings::now();
  }
  Holdings::expect_as(before);
  job.shutdown();
  return 0;
}

}  // namespace

std::vector<Situation> size_situations() { return {{"huge", huge}, {"S18", s18}, {"S61", s61}}; }

}  // namespace kolo::cases
