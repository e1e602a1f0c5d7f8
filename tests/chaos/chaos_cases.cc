// chaos_cases ID: one rank of a situation in which processes, clocks or networks do what they want:
// S28, S29, S38, S76. As case_ranks: ends with 0 if everything came out right on this rank, else
// prints the reason and ends with 90.
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/chaos/shim.h"
#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

// ---- S28 ---------------------------------------------------------------------------------------

struct Census {
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  std::size_t segments = 0;  // mappings of shared memory
  bool operator==(const Census&) const = default;
};

std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

Census take_census() {
  Census census{entries_of("/proc/self/fd"), entries_of("/proc/self/task"), 0};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") != std::string::npos) ++census.segments;
  }
  return census;
}

int s28() {
  Census early;
  const int rounds = repetitions(100);
  for (int round = 1; round <= rounds; ++round) {
    const Job job;
    job.expect_size(3);
    for (int i = 0; i < 5; ++i) job.probe();
    sleep_ms((job.rank() * 7 + round * 3) % 21);
    job.shutdown();
    if (round == 2) early = take_census();
  }
  const Census late = take_census();
  if (!(late == early)) {
    fail("descriptors, threads, segments: " + std::to_string(late.descriptors) + ", " +
         std::to_string(late.threads) + ", " + std::to_string(late.segments) + " instead of " +
         std::to_string(early.descriptors) + ", " + std::to_string(early.threads) + ", " +
         std::to_string(early.segments));
  }
  return 0;
}

// ---- S29 ---------------------------------------------------------------------------------------

constexpr std::size_t kTensors = 200;
constexpr std::size_t kCount = std::size_t{1} << 18;  // 1 MiB of floats
constexpr int kLeaver = 1;

// Waits for all; each is exact, or ended with `allowed`. Then nothing touches the buffers.
void finish_all(const Job& job, std::vector<kolo_request>& requests,
                std::vector<std::vector<float>>& values, kolo_status allowed) {
  const float sum = static_cast<float>(job.size() * (job.size() + 1) / 2);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const kolo_status status = kolo_wait(job.context(), &requests[i], 30'000);
    if (status != KOLO_OK) {
      expect_status(status, allowed, "a wait");
    } else {
      for (const float value : values[i]) KOLO_EXPECT(value == sum);
    }
    std::fill(values[i].begin(), values[i].end(), -1.0F);
  }
  sleep_ms(20);
  for (const std::vector<float>& tensor : values) {
    for (const float value : tensor) KOLO_EXPECT(value == -1.0F);
  }
}

int leave_with_all_in_flight(bool with_shutdown) {
  ::signal(SIGTERM, SIG_IGN);  // the launcher's, should the other ranks' end be a failure
  // Never freed, not even by exit(): what is in flight is the program's to keep.
  auto& values = *new std::vector<std::vector<float>>;
  const Job job;
  job.expect_size(3);
  if (!with_shutdown) job.gather_before_an_end(job.rank() == kLeaver);
  values.assign(kTensors, std::vector<float>(kCount, static_cast<float>(job.rank() + 1)));
  std::vector<kolo_request> requests;
  for (std::size_t i = 0; i < kTensors; ++i) {
    const std::string name = "g" + std::to_string(i);
    const kolo_options options = named(name.c_str());
    kolo_request request = KOLO_REQUEST_NULL;
    const kolo_status status = kolo_allreduce(job.context(), values[i].data(), values[i].data(),
                                              kCount, KOLO_FLOAT32, KOLO_SUM, &options, &request);
    if (status != KOLO_OK) {  // the leaver was quicker
      expect_status(status, with_shutdown ? KOLO_ABORTED : KOLO_PEER_LOST, "a submission");
      break;
    }
    requests.push_back(request);
  }
  if (job.rank() != kLeaver) {
    values.resize(requests.size());
    finish_all(job, requests, values, with_shutdown ? KOLO_ABORTED : KOLO_PEER_LOST);
  }
  if (with_shutdown) {
    const Stopwatch watch;
    job.shutdown();
    watch.expect_between(0, 2, "kolo_shutdown");
  }
  return 0;
}

int s29() { return leave_with_all_in_flight(true); }
int s29_exit() { return leave_with_all_in_flight(false); }

// ---- S38 ---------------------------------------------------------------------------------------

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int s38() {
  ::signal(SIGTERM, SIG_IGN);
  const Stopwatch watch;
  const double cpu = cpu_seconds();
  kolo_context* context = nullptr;
  const kolo_status status = kolo_init(nullptr, &context);
  watch.expect_between(5, 6, "kolo_init returned");
  KOLO_EXPECT(cpu_seconds() - cpu < 0.1 * watch.seconds());
  KOLO_EXPECT(context == nullptr);
  if (status != KOLO_TIMED_OUT && status != KOLO_PEER_LOST) fail("kolo_init: not a timeout");
  expect_text({"rank 1", "rank 2", "10.77.0.2"});
  return 0;
}

// ---- S76 ---------------------------------------------------------------------------------------

void jump(int seconds) {
  KOLO_EXPECT(chaos_shim_set_clock != nullptr);
  constexpr long long kNanosPerSecond = 1'000'000'000;
  chaos_shim_set_clock(seconds * kNanosPerSecond);
}

// Rank 1's clock jumps during steps; then on both ranks, while rank 0 waits for rank 1 with a limit
// of 5 s: one of the wait, one of the operation.
int s76() {
  constexpr int kJumpsSeconds[] = {3600, -3600, 30, 0};
  const Job job;
  job.expect_size(2);
  for (int step = 0; step < 100; ++step) {
    if (job.rank() == 1) jump(kJumpsSeconds[step % 4]);
    job.probe();
    sleep_ms(5);
  }
  std::thread clock([&] {
    for (int i = 0; i < 12; ++i) {
      sleep_ms(500);
      jump(kJumpsSeconds[i % 4]);
    }
  });
  std::vector<float> waited = {1.0F};
  std::vector<float> limited = {1.0F};
  if (job.rank() == 1) sleep_ms(6500);
  kolo_request request = job.submit("waited for", waited);
  if (job.rank() == 0) {
    kolo_options options = named("limited");
    options.timeout_ms = 5000;
    kolo_request other = job.submit_raw(options, limited.data(), 1, KOLO_FLOAT32);
    const Stopwatch watch;
    expect_status(kolo_wait(job.context(), &request, 5000), KOLO_IN_PROGRESS, "the wait");
    watch.expect_between(5, 6, "the wait ended");
    expect_status(kolo_wait(job.context(), &other, 5000), KOLO_TIMED_OUT, "the limited one");
    watch.expect_between(5, 6, "the operation ended");
  }
  job.finish(request, KOLO_OK);
  KOLO_EXPECT(waited[0] == 2.0F);
  clock.join();
  job.probe();
  job.shutdown();
  return 0;
}

}  // namespace
}  // namespace kolo::cases

int main(int argc, char** argv) {
  using namespace kolo::cases;
  const Situation situations[] = {
      {"S28", s28}, {"S29", s29}, {"S29-exit", s29_exit}, {"S38", s38}, {"S76", s76}};
  for (const Situation& situation : situations) {
    if (argc > 1 && std::strcmp(situation.id, argv[1]) == 0) return situation.run();
  }
  std::fprintf(stderr, "chaos_cases: no such situation\n");
  return 2;
}
