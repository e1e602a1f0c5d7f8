#include "tests/multiproc/cases/job.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace kolo::cases {

void fail(const std::string& what) {
  const char* rank = std::getenv("KOLO_RANK");
  std::fprintf(stderr, "case_ranks: rank %s: %s (last error: %s)\n", rank == nullptr ? "?" : rank,
               what.c_str(), kolo_last_error());
  std::fflush(nullptr);
  ::_exit(kFailed);
}

void expect_status(kolo_status got, kolo_status want, std::string_view what) {
  if (got == want) return;
  fail(std::string(what) + ": " + kolo_status_string(got) + " instead of " +
       kolo_status_string(want));
}

void expect_text_in(std::string_view text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (text.find(part) == std::string_view::npos) {
      fail("no \"" + std::string(part) + "\" in the text \"" + std::string(text) + "\"");
    }
  }
}

void expect_text(std::initializer_list<std::string_view> parts) {
  expect_text_in(kolo_last_error(), parts);
}

void Stopwatch::expect_between(double least, double most, std::string_view what) const {
  const double passed = seconds();
  if (passed >= least && passed <= most) return;
  fail(std::string(what) + " after " + std::to_string(passed) + " s, not " + std::to_string(least) +
       " to " + std::to_string(most));
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

namespace {

std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

std::string text_of(const Holdings& held) {
  return std::to_string(held.descriptors) + " descriptors, " + std::to_string(held.threads) +
         " threads, " + std::to_string(held.resident_bytes) + " bytes resident";
}

}  // namespace

Holdings Holdings::now() {
  unsigned long pages = 0;
  std::string ignored;
  if (!(std::ifstream("/proc/self/statm") >> ignored >> pages)) fail("/proc/self/statm");
  return {entries_of("/proc/self/fd"), entries_of("/proc/self/task"),
          pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))};
}

void Holdings::expect_as(const Holdings& before) {
  constexpr std::size_t kMoreBytes = std::size_t{8} << 20;
  Holdings after = now();
  for (int turn = 0; turn < 100 && after.threads > before.threads; ++turn) {
    sleep_ms(10);
    after = now();
  }
  if (after.descriptors > before.descriptors || after.threads > before.threads ||
      after.resident_bytes > before.resident_bytes + kMoreBytes) {
    fail("held " + text_of(before) + ", and now " + text_of(after));
  }
}

char state_of(std::int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t after_name = text.rfind(") ");
  return after_name == std::string::npos ? '\0' : text[after_name + 2];
}

int repetitions(int full) { return long_tests() ? full : std::max(20, full / 10); }

bool long_tests() {
  const char* wish = std::getenv("KOLO_TEST_LONG");
  return wish != nullptr && std::strcmp(wish, "1") == 0;
}

std::uint64_t hash_of(const void* memory, std::size_t bytes, std::uint64_t seed) {
  const auto* values = static_cast<const unsigned char*>(memory);
  std::uint64_t hash = seed;
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ values[i]) * 0x100000001b3U;
  return hash;
}

kolo_options named(const char* name, std::int32_t pset) {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = name;
  options.pset = pset;
  return options;
}

std::string road_of(kolo_context* context) {
  const char* info = "";
  expect_status(kolo_info(context, &info), KOLO_OK, "kolo_info");
  const std::string_view text = info;
  const std::string_view key = "\"road\":\"";
  const std::size_t begin = text.find(key) + key.size();
  return std::string(text.substr(begin, text.find('"', begin) - begin));
}

Job::Job() {
  expect_status(kolo_init(nullptr, &context_), KOLO_OK, "kolo_init");
  rank_ = kolo_rank(context_);
  size_ = kolo_size(context_);
  const char* road = std::getenv("KOLO_TEST_ROAD");
  if (road != nullptr && size_ > 1 && road_of(context_) != road) {
    fail("the road is " + road_of(context_) + ", not " + road);
  }
}

void Job::expect_size(int size) const {
  if (size_ != size) fail("this case needs " + std::to_string(size) + " ranks");
}

std::vector<std::int32_t> Job::pids() const {
  const std::int32_t own = ::getpid();
  std::vector<std::int32_t> all(static_cast<std::size_t>(size_));
  expect_status(kolo_allgather(context_, &own, all.data(), 1, KOLO_INT32, nullptr, nullptr),
                KOLO_OK, "kolo_allgather");
  return all;
}

kolo_request Job::submit_raw(const kolo_options& options, void* values, std::size_t count,
                             kolo_dtype dtype, kolo_op op) const {
  kolo_request request = KOLO_REQUEST_NULL;
  expect_status(kolo_allreduce(context_, values, values, count, dtype, op, &options, &request),
                KOLO_OK, "kolo_allreduce");
  return request;
}

kolo_request Job::broadcast(const char* name, void* values, std::size_t count, kolo_dtype dtype,
                            int root) const {
  const kolo_options options = named(name);
  kolo_request request = KOLO_REQUEST_NULL;
  expect_status(kolo_broadcast(context_, values, values, count, dtype, root, &options, &request),
                KOLO_OK, "kolo_broadcast");
  return request;
}

void Job::finish(kolo_request request, kolo_status want) const {
  constexpr std::int64_t kLimitMs = 30'000;
  expect_status(kolo_wait(context_, &request, kLimitMs), want, "kolo_wait");
  KOLO_EXPECT(request == KOLO_REQUEST_NULL);
}

void Job::finish_soon(kolo_request request, kolo_status want) const {
  const Stopwatch watch;
  finish(request, want);
  watch.expect_between(0, 1, "the wait ended");
}

std::int32_t Job::make_set(const std::vector<std::int32_t>& ranks, const char* name) const {
  std::int32_t pset = -1;
  const kolo_options options = named(name);
  expect_status(kolo_pset_create(context_, ranks.data(), ranks.size(), &pset, &options, nullptr),
                KOLO_OK, "kolo_pset_create");
  KOLO_EXPECT(pset > 0);
  return pset;
}

void Job::end_set(std::int32_t pset) const {
  expect_status(kolo_pset_destroy(context_, pset, nullptr, nullptr), KOLO_OK, "kolo_pset_destroy");
}

std::int32_t Job::join(std::int32_t pset) const {
  std::int32_t last = -1;
  const kolo_options options = named(nullptr, pset);
  expect_status(kolo_join(context_, &last, &options, nullptr), KOLO_OK, "kolo_join");
  return last;
}

void Job::probe() const {
  std::int64_t value = rank_ + 1;
  const kolo_options options = named("probe");
  expect_status(
      kolo_allreduce(context_, &value, &value, 1, KOLO_INT64, KOLO_SUM, &options, nullptr), KOLO_OK,
      "the probe");
  KOLO_EXPECT(value == std::int64_t{size_} * (size_ + 1) / 2);
}

void Job::gather_before_an_end(bool ends) const {
  const kolo_options options = named("before an end");
  const kolo_status status = kolo_barrier(context_, &options, nullptr);
  if (ends) expect_status(status, KOLO_OK, "the last call before the end");
}

void Job::shutdown() const {
  expect_status(kolo_shutdown(context_), KOLO_OK, "kolo_shutdown");
  expect_status(kolo_shutdown(context_), KOLO_NOT_INITIALIZED, "a second kolo_shutdown");
}

}  // namespace kolo::cases
