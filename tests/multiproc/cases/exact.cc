// S11 to S13 and S19: every bit and every place.
#include <bit>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes reduce_bools(const Job& job, const char* name, Bytes values, kolo_op op) {
  job.finish(job.submit_raw(named(name), values.data(), values.size(), KOLO_BOOL, op), KOLO_OK);
  return values;
}

int s11() {
  const Job job;
  job.expect_size(2);
  const Bytes mine = {0x80, static_cast<std::uint8_t>(job.rank() == 0 ? 0x02 : 0x00)};
  for (int round = 0; round < 3; ++round) {  // at first sight, and known
    KOLO_EXPECT(reduce_bools(job, "sum", mine, KOLO_SUM) == (Bytes{1, 1}));
    KOLO_EXPECT(reduce_bools(job, "min", mine, KOLO_MIN) == (Bytes{1, 0}));
  }
  job.shutdown();
  return 0;
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

int s12() {
  const Job job;
  job.expect_size(3);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float firsts[] = {kInfinity, -kInfinity, 0.0F};
  for (int round = 0; round < 3; ++round) {
    std::vector<float> mine = {firsts[job.rank()], static_cast<float>(job.rank() + 1), -0.0F};
    mine = job.reduce("specials", mine);
    KOLO_EXPECT(mine[0] != mine[0] && mine[1] == 6.0F && bits_of(mine[2]) == bits_of(-0.0F));
    std::vector<std::uint32_t> bits(9);
    expect_status(
        kolo_allgather(job.context(), mine.data(), bits.data(), 3, KOLO_FLOAT32, nullptr, nullptr),
        KOLO_OK, "kolo_allgather");
    for (std::size_t i = 0; i < bits.size(); ++i) KOLO_EXPECT(bits[i] == bits[i % 3]);

    // Small, and longer than any tile.
    for (const std::size_t count : {std::size_t{5}, std::size_t{300'001}}) {
      constexpr std::uint32_t kSignalling = 0x7fa00001;
      std::vector<std::uint32_t> values(count, kSignalling);
      std::mt19937 random(7);  // the same everywhere
      std::vector<std::uint32_t> wanted(count);
      for (std::uint32_t& value : wanted) value = static_cast<std::uint32_t>(random());
      wanted[0] = kSignalling;
      wanted[1] = 0xff800001;  // another one
      if (job.rank() == 1) values = wanted;
      const std::string name = "root's " + std::to_string(count);
      job.finish(job.broadcast(name.c_str(), values.data(), count, KOLO_FLOAT32, 1), KOLO_OK);
      KOLO_EXPECT(values == wanted);
    }
  }
  job.shutdown();
  return 0;
}

// The hash of all results of all steps, the same on all ranks after every step, is printed.
int s13() {
  const Job job;
  job.expect_size(3);
  constexpr std::size_t kTensors = 20;
  const int steps = long_tests() ? 1000 : 60;
  std::mt19937 shapes(13);
  std::mt19937 random(static_cast<unsigned>(100 + job.rank()));
  std::vector<std::vector<float>> tensors(kTensors);
  for (auto& tensor : tensors) {  // a few bytes to half a megabyte
    tensor.resize(1 + shapes() % (std::size_t{1} << (shapes() % 18)));
  }
  std::uint64_t hash = hash_of("", 0);
  for (int step = 0; step < steps; ++step) {
    std::vector<kolo_request> requests;
    for (auto& tensor : tensors) {
      for (float& value : tensor) {
        value = (static_cast<float>(random()) - 2e9F) * (random() % 2 == 0 ? 1.0F : 1e-5F);
      }
    }
    for (std::size_t i = 0; i < kTensors; ++i) {  // in another order on every rank
      const std::size_t at = (i * 7 + static_cast<std::size_t>(job.rank() * 5 + step)) % kTensors;
      requests.push_back(job.submit(("t" + std::to_string(at)).c_str(), tensors[at]));
    }
    expect_status(kolo_wait_all(job.context(), requests.data(), requests.size(), 30'000), KOLO_OK,
                  "kolo_wait_all");
    for (const auto& tensor : tensors) {
      hash = hash_of(tensor.data(), tensor.size() * sizeof(float), hash);
    }
    std::uint64_t hashes[3] = {};
    expect_status(kolo_allgather(job.context(), &hash, hashes, 1, KOLO_UINT64, nullptr, nullptr),
                  KOLO_OK, "kolo_allgather");
    for (const std::uint64_t other : hashes) KOLO_EXPECT(other == hash);
  }
  if (job.rank() == 0) {
    std::printf("hash %016llx over %d steps\n", static_cast<unsigned long long>(hash), steps);
    std::fflush(stdout);
  }
  job.shutdown();
  return 0;
}

std::int64_t value_of(int rank, std::size_t index) {
  return std::int64_t{1'000'000} * rank + static_cast<std::int64_t>(index);
}

int s19() {
  const Job job;
  job.expect_size(3);
  constexpr std::size_t kLongest = 2049;
  std::vector<std::int64_t> mine(kLongest);
  for (std::size_t i = 0; i < kLongest; ++i) mine[i] = value_of(job.rank(), i);
  // All lengths in long tests, else every seventh of the longer ones, whatever they leave over 3.
  const std::size_t step = long_tests() ? 1 : 7;
  for (std::size_t length = 1; length <= kLongest; length += length < 65 ? 1 : step) {
    std::vector<std::int64_t> gathered(3 * length, -1);
    std::vector<std::int64_t> summed(length, -1);
    kolo_request requests[2] = {};
    const kolo_options gather = named("gather");
    const kolo_options sum = named("sum");
    expect_status(kolo_allgather(job.context(), mine.data(), gathered.data(), length, KOLO_INT64,
                                 &gather, &requests[0]),
                  KOLO_OK, "kolo_allgather");
    expect_status(kolo_allreduce(job.context(), mine.data(), summed.data(), length, KOLO_INT64,
                                 KOLO_SUM, &sum, &requests[1]),
                  KOLO_OK, "kolo_allreduce");
    expect_status(kolo_wait_all(job.context(), requests, 2, 10'000), KOLO_OK, "kolo_wait_all");
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      KOLO_EXPECT(gathered[i] == value_of(static_cast<int>(i / length), i % length));
    }
    for (std::size_t i = 0; i < length; ++i) {
      KOLO_EXPECT(summed[i] == 3'000'000 + 3 * static_cast<std::int64_t>(i));
    }
  }
  job.shutdown();
  return 0;
}

}  // namespace

std::vector<Situation> exact_situations() {
  return {{"S11", s11}, {"S12", s12}, {"S13", s13}, {"S19", s19}};
}

}  // namespace kolo::cases
