// S57 to S60, S62: places, memory and descriptors that are not to be had, and what ranks cost that
// do nothing.
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "tests/multiproc/cases/denial.h"
#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int rank_in_environment() { return std::atoi(variable("KOLO_RANK").c_str()); }

std::vector<int> hosts_of(kolo_context* context) {
  const char* info = "";
  expect_status(kolo_info(context, &info), KOLO_OK, "kolo_info");
  const char* at = std::strstr(info, "\"hosts\":[");
  KOLO_EXPECT(at != nullptr);
  std::vector<int> hosts;
  for (at += std::strlen("\"hosts\":["); *at != ']'; at += *at == ',' ? 1 : 0) {
    char* end = nullptr;
    hosts.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    KOLO_EXPECT(end != at);
    at = end;
  }
  return hosts;
}

// Every rank's place among those of its host is right, and all know it; a sum is exact.
void check_places(const Job& job) {
  const std::vector<int> hosts = hosts_of(job.context());
  const auto rank = static_cast<std::size_t>(job.rank());
  KOLO_EXPECT(hosts.size() == static_cast<std::size_t>(job.size()));
  const auto before = std::count(hosts.begin(), hosts.begin() + job.rank(), hosts[rank]);
  const auto all = std::count(hosts.begin(), hosts.end(), hosts[rank]);
  KOLO_EXPECT(kolo_local_rank(job.context()) == before);
  KOLO_EXPECT(kolo_local_size(job.context()) == all);
  job.probe();
}

// Prints its place, and the system's name of the host.
int s57() {
  const Job job;
  check_places(job);
  std::vector<std::int32_t> values(std::size_t{1} << 18, job.rank() + 1);
  const std::int32_t sum = job.size() * (job.size() + 1) / 2;
  for (const std::int32_t value : job.reduce("wire", values)) KOLO_EXPECT(value == sum);
  char name[256] = "";
  KOLO_EXPECT(::gethostname(name, sizeof name - 1) == 0);
  std::printf("rank %d is %d of %d on %s\n", job.rank(), kolo_local_rank(job.context()),
              kolo_local_size(job.context()), name);
  std::fflush(stdout);
  job.shutdown();
  return 0;
}

int s57_bound() {
  cpu_set_t allowed;
  KOLO_EXPECT(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  const int wanted = rank_in_environment() % CPU_COUNT(&allowed);
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || seen++ != wanted) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(core, &own);
    KOLO_EXPECT(::sched_setaffinity(0, sizeof own, &own) == 0);
  }
  return s57();
}

// Ordinary memory and kolo's, small and large; where kolo has none to give, RESOURCE.
void use_memory(const Job& job, bool may_allocate) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  constexpr std::size_t kCount = kBytes / sizeof(std::int32_t);
  const std::int32_t sum = job.size() * (job.size() + 1) / 2;
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, kCount}) {
      const std::string name = "plain " + std::to_string(count);
      for (const std::int32_t value :
           job.reduce(name.c_str(), std::vector<std::int32_t>(count, job.rank() + 1))) {
        KOLO_EXPECT(value == sum);
      }
    }
    void* memory = nullptr;
    const kolo_status status = kolo_alloc(job.context(), kBytes, &memory);
    expect_status(status, may_allocate ? KOLO_OK : KOLO_RESOURCE, "kolo_alloc");
    KOLO_EXPECT((memory != nullptr) == may_allocate);
    std::vector<std::int32_t> instead(may_allocate ? 0 : kCount);
    auto* values = may_allocate ? static_cast<std::int32_t*>(memory) : instead.data();
    std::fill_n(values, kCount, job.rank() + 1);
    job.finish(job.submit_raw(named("allocated"), values, kCount, KOLO_INT32), KOLO_OK);
    for (std::size_t i = 0; i < kCount; ++i) KOLO_EXPECT(values[i] == sum);
    expect_status(kolo_free(job.context(), memory), KOLO_OK, "kolo_free");
  }
}

// KOLO_TEST_DENIED fails, on rank KOLO_TEST_DENIED_ON or on all, from before kolo_init on.
bool deny_here() {
  const std::string denied = variable("KOLO_TEST_DENIED");
  const std::string on = variable("KOLO_TEST_DENIED_ON");
  const bool here =
      !denied.empty() && (on.empty() || std::atoi(on.c_str()) == rank_in_environment());
  if (here) deny(denied);
  return here;
}

int s58() {
  const bool denied = deny_here();
  const Job job;
  use_memory(job, !denied || variable("KOLO_TEST_DENIED") != "fallocate-alloc");
  job.probe();
  job.shutdown();
  return 0;
}

// Shared memory is demanded and cannot be had: kolo_init says so on every rank, and to whom.
int s58_demanded() {
  deny_here();
  kolo_context* context = nullptr;
  const Stopwatch watch;
  expect_status(kolo_init(nullptr, &context), KOLO_RESOURCE, "kolo_init");
  watch.expect_between(0, 5, "kolo_init");
  KOLO_EXPECT(context == nullptr);
  expect_text({"bytes"});
  sleep_ms(300);  // so that the launcher ends nobody before it has looked
  return 0;
}

// Reduces in all kinds of memory until somebody ends it.
int s59() {
  const Job job;
  while (true) use_memory(job, true);
}

double processor_seconds() {
  timespec now{};
  KOLO_EXPECT(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// A fixed amount of arithmetic; its result is of no use, but the compiler must not know.
double compute() {
  volatile double sink = 0;
  double value = 1;
  for (int i = 0; i < 200'000'000; ++i) value = value * 0.999999 + 1e-3;
  sink = value;
  return sink;
}

struct Spent {
  double processor;
  double wall;
};

Spent measure_compute() {
  const double before = processor_seconds();
  const Stopwatch watch;
  compute();
  return {processor_seconds() - before, watch.seconds()};
}

// Processor time of all threads of this process counts, and is told; the wall clock, which other
// programs may spoil, is only told.
int s62() {
  Spent with{};
  {
    const Job job;
    job.expect_size(4);
    for (int i = 0; i < 100; ++i) job.probe();
    const double idle_seconds = long_tests() ? 10 : 3;
    const double before = processor_seconds();
    sleep_ms(static_cast<int>(idle_seconds * 1000));
    const double share = (processor_seconds() - before) / idle_seconds;
    std::printf("rank %d idle: %.3f %% of a core\n", job.rank(), share * 100);
    if (share > 0.01) fail("idle, it takes " + std::to_string(share * 100) + " % of a core");
    job.probe();
    with = measure_compute();
    job.probe();
    job.shutdown();
  }
  const Spent without = measure_compute();
  const double ratio = with.processor / without.processor;
  std::printf("rank %d computing, with the library to without: processor %.3f, wall %.3f\n",
              rank_in_environment(), ratio, with.wall / without.wall);
  std::fflush(stdout);
  const double limit = long_tests() ? 1.02 : 1.25;
  if (ratio > limit) fail("computing takes " + std::to_string(ratio) + " of the time without");
  return 0;
}

void limit_descriptors(rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  KOLO_EXPECT(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

int s60_soft() {
  limit_descriptors(40, 4096);
  const Job job;
  job.expect_size(16);
  for (int i = 0; i < 3; ++i) job.probe();
  const std::vector<float> ones(100'000, 1.0F);
  for (const float sum : job.reduce("large", ones)) KOLO_EXPECT(sum == 16.0F);
  job.shutdown();
  return 0;
}

int s60_hard() {
  limit_descriptors(40, 40);
  kolo_context* context = nullptr;
  const Stopwatch watch;
  expect_status(kolo_init(nullptr, &context), KOLO_RESOURCE, "kolo_init");
  watch.expect_between(0, 2, "kolo_init failed");
  KOLO_EXPECT(context == nullptr);
  expect_text({"descriptors", "limit is 40", "needs"});
  return 0;
}

}  // namespace

std::vector<Situation> resource_situations() {
  return {{"S57", s57},           {"S57.bound", s57_bound},
          {"S58", s58},           {"S58.demanded", s58_demanded},
          {"S59", s59},           {"S60-soft", s60_soft},
          {"S60-hard", s60_hard}, {"S62", s62}};
}

}  // namespace kolo::cases
