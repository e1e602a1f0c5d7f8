// S07 to S10 and S14: numbers.
#include <limits>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

using Bits16 = std::vector<std::uint16_t>;

Bits16 reduce_16(const Job& job, const char* name, Bits16 bits, kolo_dtype dtype, kolo_op op) {
  job.finish(job.submit_raw(named(name), bits.data(), bits.size(), dtype, op), KOLO_OK);
  return bits;
}

int s07() {
  const Job job;
  job.expect_size(4);
  constexpr std::uint16_t kSmallest = 0x0001;  // 2^-24
  constexpr std::uint16_t k40000 = 0x78E2;
  const Bits16 small(1001, kSmallest);
  KOLO_EXPECT(reduce_16(job, "small", small, KOLO_FLOAT16, KOLO_AVG) == small);
  const Bits16 mixed = {k40000, kSmallest};
  KOLO_EXPECT(reduce_16(job, "mixed", mixed, KOLO_FLOAT16, KOLO_AVG) == mixed);
  job.shutdown();
  return 0;
}

int s08_two() {
  const Job job;
  job.expect_size(2);
  // 1.0 on rank 0; 0.005859375 and 0.00390625 on rank 1.
  const Bits16 mine = job.rank() == 0 ? Bits16{0x3F80, 0x3F80} : Bits16{0x3BC0, 0x3B80};
  const Bits16 rounded = {0x3F81, 0x3F80};  // 1.0078125, not cut off; 1.0, the even neighbour
  KOLO_EXPECT(reduce_16(job, "b", mine, KOLO_BFLOAT16, KOLO_SUM) == rounded);
  job.shutdown();
  return 0;
}

int s08_three() {
  const Job job;
  job.expect_size(3);
  constexpr std::uint16_t k2048 = 0x6800;
  constexpr std::uint16_t k2050 = 0x6801;
  constexpr std::uint16_t kOne = 0x3C00;
  constexpr std::size_t kPositions = 1000;
  Bits16 runs[2];
  for (Bits16& run : runs) {
    run = reduce_16(job, "h", Bits16(kPositions, job.rank() == 0 ? k2048 : kOne), KOLO_FLOAT16,
                    KOLO_SUM);
    for (const std::uint16_t bits : run) KOLO_EXPECT(bits == k2048 || bits == k2050);
    Bits16 all(3 * kPositions);
    expect_status(kolo_allgather(job.context(), run.data(), all.data(), kPositions, KOLO_UINT16,
                                 nullptr, nullptr),
                  KOLO_OK, "kolo_allgather");
    for (std::size_t i = 0; i < all.size(); ++i) KOLO_EXPECT(all[i] == run[i % kPositions]);
  }
  KOLO_EXPECT(runs[0] == runs[1]);
  job.shutdown();
  return 0;
}

int s09() {
  const Job job;
  job.expect_size(2);
  const bool first = job.rank() == 0;
  using Ints = std::vector<std::int32_t>;
  using Bytes = std::vector<std::uint8_t>;
  KOLO_EXPECT(job.reduce("i", first ? Ints{-3, 7, 5} : Ints{-4, 8, 6}, KOLO_AVG) ==
              (Ints{-3, 7, 5}));
  KOLO_EXPECT(job.reduce("u", Bytes{static_cast<std::uint8_t>(first ? 200 : 100)}, KOLO_AVG) ==
              Bytes{150});
  job.shutdown();
  return 0;
}

template <typename T>
void expect_extremes(const Job& job) {
  constexpr T kLarge = std::numeric_limits<T>::max();
  constexpr T kSmall = kLarge / 2;  // as a signed number, the larger of the two
  const T mine = job.rank() == 0 ? kLarge : kSmall;
  KOLO_EXPECT(job.reduce("max", std::vector<T>{mine}, KOLO_MAX)[0] == kLarge);
  KOLO_EXPECT(job.reduce("min", std::vector<T>{mine}, KOLO_MIN)[0] == kSmall);
}

int s10() {
  const Job job;
  job.expect_size(2);
  expect_extremes<std::uint64_t>(job);
  expect_extremes<std::uint32_t>(job);
  expect_extremes<std::uint8_t>(job);
  job.shutdown();
  return 0;
}

int s14() {
  const Job job;
  job.expect_size(2);
  float value = job.rank() == 0 ? 1.0F : 3.0F;
  kolo_options options = named("f");
  options.prescale = 0.5;
  options.postscale = 4;
  job.finish(job.submit_raw(options, &value, 1, KOLO_FLOAT32, KOLO_AVG), KOLO_OK);
  KOLO_EXPECT(value == 4.0F);
  // Scaling integers is not offered: refused on both.
  std::int32_t integer = job.rank() == 0 ? 2 : 4;
  options = named("i");
  options.postscale = 0.5;
  kolo_request request = 1;
  expect_status(kolo_allreduce(job.context(), &integer, &integer, 1, KOLO_INT32, KOLO_SUM, &options,
                               &request),
                KOLO_INVALID_ARGUMENT, "an integer with a scale");
  expect_text({"\"i\"", "postscale 0.5", "i32"});
  KOLO_EXPECT(request == KOLO_REQUEST_NULL && integer == (job.rank() == 0 ? 2 : 4));
  job.probe();
  job.shutdown();
  return 0;
}

// A tensor has the same bits at first sight, once it is known, without a name and in a group.
int same_bits() {
  const Job job;
  for (const std::size_t count : {std::size_t{3}, std::size_t{10}, std::size_t{2000}}) {
    std::vector<float> mine(count);
    for (std::size_t i = 0; i < count; ++i) {
      mine[i] = 1.0F / static_cast<float>(3 + 7 * job.rank() + static_cast<int>(i));
    }
    const std::string name = "t" + std::to_string(count);
    const std::vector<float> first = job.reduce(name.c_str(), mine);
    for (int again = 0; again < 3; ++again) KOLO_EXPECT(job.reduce(name.c_str(), mine) == first);
    std::vector<float> unnamed = mine;
    job.finish(job.submit(nullptr, unnamed), KOLO_OK);
    KOLO_EXPECT(unnamed == first);
    std::vector<float> member = mine;
    expect_status(kolo_group_begin(job.context(), nullptr), KOLO_OK, "kolo_group_begin");
    static_cast<void>(job.submit("m", member));
    expect_status(kolo_group_end(job.context(), nullptr), KOLO_OK, "kolo_group_end");
    KOLO_EXPECT(member == first);
  }
  job.shutdown();
  return 0;
}

}  // namespace

std::vector<Situation> number_situations() {
  return {{"S07", s07}, {"S08.2", s08_two}, {"S08.3", s08_three},    {"S09", s09},
          {"S10", s10}, {"S14", s14},       {"same-bits", same_bits}};
}

}  // namespace kolo::cases
