// Every collective above 2^31 elements and bytes, on two ranks with one large buffer each where
// that can be. The all-reduce is "huge" in sizes.cc.
#include <string>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

constexpr std::size_t kWide = (std::size_t{1} << 31) + 5;
constexpr std::size_t kNarrow = 7;
using Bytes = std::vector<std::uint8_t>;
using Counts = std::vector<std::size_t>;

// Differs by rank, and at distances of 2^31 and 2^32.
std::uint8_t value_of(int rank, std::size_t i) {
  return static_cast<std::uint8_t>(i % 61 + static_cast<std::size_t>(rank) * 64);
}

void finish_wide(const Job& job, kolo_status called, kolo_request request) {
  expect_status(called, KOLO_OK, "the call");
  expect_status(kolo_wait(job.context(), &request, 600'000), KOLO_OK, "kolo_wait");
}

// The first block is the wide one; in place.
int wide_reduce_scatter() {
  const Job job;
  job.expect_size(2);
  const Counts counts = {kWide, kNarrow};
  Bytes values(kWide + kNarrow);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(job.rank(), i);
  const std::size_t begin = job.rank() == 0 ? 0 : kWide;
  const std::size_t mine = counts[static_cast<std::size_t>(job.rank())];
  kolo_options options = named("scatter");
  options.recv_counts = counts.data();
  kolo_request request = KOLO_REQUEST_NULL;
  const kolo_status called =
      kolo_reduce_scatter(job.context(), values.data(), values.data() + begin, mine, KOLO_UINT8,
                          KOLO_SUM, &options, &request);
  finish_wide(job, called, request);
  for (std::size_t i = begin; i < begin + mine; ++i) {
    if (values[i] != static_cast<std::uint8_t>(value_of(0, i) + value_of(1, i))) {
      fail("element " + std::to_string(i));
    }
  }
  job.shutdown();
  return 0;
}

int wide_allgather() {
  const Job job;
  job.expect_size(2);
  const Counts counts = {kWide, kNarrow};
  Bytes values(kWide + kNarrow);
  const std::size_t begin = job.rank() == 0 ? 0 : kWide;
  const std::size_t mine = counts[static_cast<std::size_t>(job.rank())];
  for (std::size_t i = 0; i < mine; ++i) values[begin + i] = value_of(job.rank(), i);
  kolo_options options = named("gather");
  options.recv_counts = counts.data();
  kolo_request request = KOLO_REQUEST_NULL;
  const kolo_status called = kolo_allgather(job.context(), values.data() + begin, values.data(),
                                            mine, KOLO_UINT8, &options, &request);
  finish_wide(job, called, request);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint8_t want = i < kWide ? value_of(0, i) : value_of(1, i - kWide);
    if (values[i] != want) fail("element " + std::to_string(i));
  }
  job.shutdown();
  return 0;
}

// Into the library's own memory.
int wide_allgather_allocated() {
  const Job job;
  job.expect_size(2);
  Bytes values(job.rank() == 0 ? kWide : kNarrow);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(job.rank(), i);
  kolo_options options = named("allocated");
  options.allocate = 1;
  kolo_request request = KOLO_REQUEST_NULL;
  expect_status(kolo_allgather(job.context(), values.data(), nullptr, values.size(), KOLO_UINT8,
                               &options, &request),
                KOLO_OK, "kolo_allgather");
  expect_status(kolo_wait(job.context(), &request, 600'000), KOLO_OK, "kolo_wait");
  void* output = nullptr;
  std::size_t count = 0;
  expect_status(kolo_request_output(job.context(), request, &output, &count, nullptr), KOLO_OK,
                "kolo_request_output");
  KOLO_EXPECT(count == kWide + kNarrow);
  const auto* gathered = static_cast<const std::uint8_t*>(output);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t want = i < kWide ? value_of(0, i) : value_of(1, i - kWide);
    if (gathered[i] != want) fail("element " + std::to_string(i));
  }
  expect_status(kolo_request_free(job.context(), &request), KOLO_OK, "kolo_request_free");
  job.shutdown();
  return 0;
}

// Rank 0 sends the wide block to rank 1; all others are narrow.
int wide_alltoall() {
  const Job job;
  job.expect_size(2);
  const Counts send = {kNarrow, job.rank() == 0 ? kWide : kNarrow};
  const Counts receive = {job.rank() == 0 ? kNarrow : kWide, kNarrow};
  Bytes input(send[0] + send[1]);
  Bytes output(receive[0] + receive[1]);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = value_of(job.rank(), i);
  kolo_options options = named("exchange");
  options.send_counts = send.data();
  options.recv_counts = receive.data();
  kolo_request request = KOLO_REQUEST_NULL;
  const kolo_status called = kolo_alltoall(job.context(), input.data(), output.data(), input.size(),
                                           KOLO_UINT8, &options, &request);
  finish_wide(job, called, request);
  const std::size_t skipped = job.rank() == 0 ? 0 : kNarrow;  // of each sender's blocks
  for (std::size_t i = 0; i < output.size(); ++i) {
    const std::uint8_t want =
        i < receive[0] ? value_of(0, skipped + i) : value_of(1, skipped + i - receive[0]);
    if (output[i] != want) fail("element " + std::to_string(i));
  }
  job.shutdown();
  return 0;
}

int wide_broadcast() {
  const Job job;
  job.expect_size(2);
  Bytes values(kWide);
  if (job.rank() == 1) {
    for (std::size_t i = 0; i < kWide; ++i) values[i] = value_of(1, i);
  }
  const kolo_request request = job.broadcast("broadcast", values.data(), kWide, KOLO_UINT8, 1);
  finish_wide(job, KOLO_OK, request);
  for (std::size_t i = 0; i < kWide; ++i) {
    if (values[i] != value_of(1, i)) fail("element " + std::to_string(i));
  }
  job.shutdown();
  return 0;
}

// Equal gradients: their adaptive sum is their average, which is exact for small whole numbers.
int wide_adasum(std::size_t count) {
  const Job job;
  job.expect_size(2);
  std::vector<std::uint16_t> values(count);
  constexpr std::uint16_t kOneAsF16 = 0x3c00;
  for (std::uint16_t& value : values) value = kOneAsF16;
  const kolo_request request =
      job.submit_raw(named("adasum"), values.data(), values.size(), KOLO_FLOAT16, KOLO_ADASUM);
  finish_wide(job, KOLO_OK, request);
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] != kOneAsF16) fail("element " + std::to_string(i));
  }
  job.shutdown();
  return 0;
}

// Moves without a pause for longer than the peer timeout that the test sets.
int long_adasum() { return wide_adasum(std::size_t{1} << 26); }

}  // namespace

std::vector<Situation> wide_situations() {
  return {{"wide-reduce-scatter", wide_reduce_scatter},
          {"wide-allgather", wide_allgather},
          {"wide-allgather-allocated", wide_allgather_allocated},
          {"wide-alltoall", wide_alltoall},
          {"wide-broadcast", wide_broadcast},
          {"long-adasum", long_adasum},
          {"wide-adasum", [] { return wide_adasum(kWide); }},
          {"wide-adasum-bytes", [] { return wide_adasum(kWide / 2 + 1); }}};
}

}  // namespace kolo::cases
