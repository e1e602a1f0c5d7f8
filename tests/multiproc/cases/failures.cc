// Situations in which a rank dies or ends the job: S23, S37, and what becomes of process sets.
//
// Survivors take no notice of the SIGTERM that kolorun sends them when a rank has died.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

constexpr int kStepsAfter = 200;  // exact ones of a set that lives on
constexpr double kKnownSeconds = 1;

std::string text_of(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : value;
}

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  while (true) ::pause();
}

void say_well(const Job& job) {
  std::printf("rank %d is well\n", job.rank());
  std::fflush(stdout);
}

// One step of a set's loop: an all-reduce of `count` elements, in which each rank also says whether
// it has heard of a loss. The status; where that is OK, every bit has been checked.
struct Step {
  kolo_status status = KOLO_OK;
  bool all_know = false;
};
Step step(const Job& job, std::int32_t pset, const std::vector<std::int32_t>& ranks,
          const char* name, std::size_t count, int number) {
  std::vector<std::int64_t> values(count + 1);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = (job.rank() + 1) * static_cast<std::int64_t>(i + 3) + number;
  }
  values[count] = kolo_health(job.context()) == KOLO_OK ? 0 : 1;
  const kolo_options options = named(name, pset);
  const kolo_status status = kolo_allreduce(job.context(), values.data(), values.data(),
                                            values.size(), KOLO_INT64, KOLO_SUM, &options, nullptr);
  if (status != KOLO_OK) return {status, false};
  std::int64_t weights = 0;
  for (const std::int32_t rank : ranks) weights += rank + 1;
  const auto size = static_cast<std::int64_t>(ranks.size());
  for (std::size_t i = 0; i < count; ++i) {
    KOLO_EXPECT(values[i] == weights * static_cast<std::int64_t>(i + 3) + size * number);
  }
  return {KOLO_OK, values[count] == size};
}

// Of a set that lives: until all its ranks know of the loss elsewhere, and then some more.
void go_on(const Job& job, std::int32_t pset, const std::vector<std::int32_t>& ranks,
           const char* name, std::size_t count) {
  int after = 0;
  for (int number = 0; after < kStepsAfter; ++number) {
    const Step done = step(job, pset, ranks, name, count, number);
    expect_status(done.status, KOLO_OK, "an operation of a set that lives");
    if (done.all_know) ++after;
  }
}

// Of a set that ends: until it does, with the right status; and every later call with the same.
void run_to_the_end(const Job& job, std::int32_t pset, const std::vector<std::int32_t>& ranks,
                    const char* name, std::size_t count, const std::string& lost) {
  Step done;
  for (int number = 0; done.status == KOLO_OK; ++number) {
    done = step(job, pset, ranks, name, count, number);
  }
  expect_status(done.status, KOLO_PEER_LOST, "an operation of a set that has lost a rank");
  expect_text({lost});
  const Stopwatch watch;
  expect_status(step(job, pset, ranks, name, count, 0).status, KOLO_PEER_LOST, "a later one");
  expect_text({lost});
  watch.expect_between(0, kKnownSeconds, "a later call failed");
}

void expect_world_lost(const Job& job, const std::string& lost) {
  const Stopwatch watch;
  std::int64_t value = 1;
  while (kolo_health(job.context()) == KOLO_OK) sleep_ms(1);
  expect_status(kolo_health(job.context()), KOLO_PEER_LOST, "kolo_health");
  expect_text({lost});
  expect_status(
      kolo_allreduce(job.context(), &value, &value, 1, KOLO_INT64, KOLO_SUM, nullptr, nullptr),
      KOLO_PEER_LOST, "an all-reduce of the world");
  expect_text({lost});
  expect_status(kolo_barrier(job.context(), nullptr, nullptr), KOLO_PEER_LOST, "a barrier");
  const std::int32_t both[] = {0, 1};
  std::int32_t pset = 0;
  expect_status(kolo_pset_create(job.context(), both, 2, &pset, nullptr, nullptr), KOLO_PEER_LOST,
                "a set made after a loss");
  expect_text({lost});
  watch.expect_between(0, kKnownSeconds, "the world's calls failed");
}

// 4 ranks, sets {0,1} and {2,3}; each pair loops all-reduces; rank 3 is killed with one in flight.
int s23() {
  std::signal(SIGTERM, SIG_IGN);
  const Job job;
  job.expect_size(4);
  const std::int32_t low = job.make_set({0, 1});
  const std::int32_t high = job.make_set({2, 3});
  job.gather_before_an_end(job.rank() == 3);
  std::thread killer;
  if (job.rank() == 3) {
    killer = std::thread([] {
      sleep_ms(150);
      die();
    });
  }
  constexpr std::size_t kElements = 20'000;
  if (job.rank() >= 2) {
    run_to_the_end(job, high, {2, 3}, "g", kElements, "rank 3");
  } else {
    go_on(job, low, {0, 1}, "g", kElements);
  }
  expect_world_lost(job, "rank 3");
  expect_status(kolo_shutdown(job.context()), KOLO_PEER_LOST, "kolo_shutdown");
  say_well(job);
  return 0;
}

// Until all ranks but `victim` have come to this word; by files in the folder KOLO_TEST_FOLDER, as
// the world may be no more.
void meet(const Job& job, const std::string& word, int victim = -1) {
  const std::string here = text_of("KOLO_TEST_FOLDER", ".") + "/" + word + "-";
  std::ofstream(here + std::to_string(job.rank())) << "here";
  for (int rank = 0; rank < job.size(); ++rank) {
    while (rank != victim && !std::filesystem::exists(here + std::to_string(rank))) sleep_ms(1);
  }
}

// Sets {0,1}, {1,2} and {0,1,2,3} with traffic on all, each by its own thread; the rank
// KOLO_TEST_VICTIM is killed after KOLO_TEST_AFTER_MS.
int loss_sets() {
  std::signal(SIGTERM, SIG_IGN);
  const Job job;
  job.expect_size(4);
  const int victim = std::atoi(text_of("KOLO_TEST_VICTIM", "3").c_str());
  const std::string lost = "rank " + std::to_string(victim);
  struct Set {
    std::vector<std::int32_t> ranks;
    const char* name;
    std::size_t count;
    std::int32_t id = 0;
  };
  std::vector<Set> sets = {{{0, 1}, "a", 2}, {{1, 2}, "b", 60'000}, {{0, 1, 2, 3}, "c", 500}};
  for (Set& set : sets) set.id = job.make_set(set.ranks);
  meet(job, "made");
  if (job.rank() == victim) {
    std::thread([] {
      sleep_ms(std::atoi(text_of("KOLO_TEST_AFTER_MS", "100").c_str()));
      die();
    }).detach();
  }
  std::vector<std::thread> threads;
  for (const Set& set : sets) {
    bool holds_this = false;
    bool ends = victim == 0;  // rank 0 orders for all of them
    for (const std::int32_t rank : set.ranks) {
      holds_this = holds_this || rank == job.rank();
      ends = ends || rank == victim;
    }
    if (!holds_this) continue;
    threads.emplace_back([&job, &set, ends, lost] {
      if (ends) {
        run_to_the_end(job, set.id, set.ranks, set.name, set.count, lost);
      } else {
        go_on(job, set.id, set.ranks, set.name, set.count);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_world_lost(job, lost);
  meet(job, "done", victim);  // rank 0 orders the sets of others, too
  expect_status(kolo_shutdown(job.context()), KOLO_PEER_LOST, "kolo_shutdown");
  say_well(job);
  return 0;
}

// A survivor that ends its process as soon as it knows must not be taken for the cause: rank 1
// dies, rank 0 ends at once, without a word, and the others name rank 1 first.
int loss_first_cause() {
  std::signal(SIGTERM, SIG_IGN);
  const Job job;
  job.expect_size(4);
  job.gather_before_an_end(job.rank() == 2);
  if (job.rank() == 2) {
    sleep_ms(100);
    die();
  }
  std::int64_t value = 1;
  const kolo_status status =
      kolo_allreduce(job.context(), &value, &value, 1, KOLO_INT64, KOLO_SUM, nullptr, nullptr);
  if (job.rank() == 1) ::_exit(0);
  expect_status(status, KOLO_PEER_LOST, "an all-reduce of the world");
  expect_text({"rank 2"});
  sleep_ms(500);
  expect_status(kolo_health(job.context()), KOLO_PEER_LOST, "kolo_health");
  expect_text({"rank 2"});
  say_well(job);
  return 0;
}

kolo_context* init_at(const std::string& job, const std::string& place) {
  kolo_config* config = nullptr;
  expect_status(kolo_config_create(&config), KOLO_OK, "kolo_config_create");
  expect_status(kolo_config_set(config, "job", job.c_str()), KOLO_OK, "job");
  expect_status(kolo_config_set(config, "rendezvous", place.c_str()), KOLO_OK, "rendezvous");
  kolo_context* context = nullptr;
  expect_status(kolo_init(config, &context), KOLO_OK, "kolo_init");
  kolo_config_destroy(config);
  return context;
}

kolo_request sum_in_flight(kolo_context* context, std::int64_t& value) {
  const kolo_options options = named("x");
  kolo_request request = KOLO_REQUEST_NULL;
  expect_status(
      kolo_allreduce(context, &value, &value, 1, KOLO_INT64, KOLO_SUM, &options, &request), KOLO_OK,
      "the submission");
  return request;
}

// 2 ranks, two contexts each; rank 1 sleeps outside of the library, rank 0 has an operation running
// on both and aborts one, then the other, in the order KOLO_TEST_ORDER.
int s37() {
  kolo_context* contexts[2] = {init_at("P", text_of("KOLO_TEST_P", "")),
                               init_at("Q", text_of("KOLO_TEST_Q", ""))};
  std::int64_t values[2] = {1, 1};
  if (kolo_rank(contexts[0]) == 1) {
    sleep_ms(long_tests() ? 30'000 : 2'500);
    for (kolo_context* context : contexts) {
      const Stopwatch watch;
      expect_status(
          kolo_allreduce(context, values, values, 1, KOLO_INT64, KOLO_SUM, nullptr, nullptr),
          KOLO_ABORTED, "a call after the sleep");
      expect_text({"rank 0"});
      watch.expect_between(0, 1, "the call after the sleep failed");
    }
  } else {
    kolo_request requests[2];
    for (int i : {0, 1}) requests[i] = sum_in_flight(contexts[i], values[i]);
    sleep_ms(300);
    const int first = text_of("KOLO_TEST_ORDER", "PQ") == "PQ" ? 0 : 1;
    for (const int i : {first, 1 - first}) {
      const Stopwatch watch;
      expect_status(kolo_abort(contexts[i], "enough"), KOLO_OK, "kolo_abort");
      watch.expect_between(0, 1, "kolo_abort returned");
      expect_status(kolo_wait(contexts[i], &requests[i], 1000), KOLO_ABORTED, "the wait");
      expect_text({"enough"});
      watch.expect_between(0, 1, "the wait returned");
    }
  }
  for (kolo_context* context : contexts) {
    expect_status(kolo_shutdown(context), KOLO_ABORTED, "kolo_shutdown");
  }
  std::printf("well\n");
  return 0;
}

}  // namespace

std::vector<Situation> failure_situations() {
  return {
      {"S23", s23}, {"S37", s37}, {"loss-sets", loss_sets}, {"loss-first-cause", loss_first_cause}};
}

}  // namespace kolo::cases
