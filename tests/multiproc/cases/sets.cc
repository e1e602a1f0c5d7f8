// S22, S32, and the rules of process sets.
#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <thread>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

using Ranks = std::vector<std::int32_t>;

bool has(const Ranks& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::int64_t sum_of(const Ranks& ranks) {
  std::int64_t sum = 0;
  for (const std::int32_t rank : ranks) sum += rank + 1;
  return sum;
}

struct Set {
  Ranks ranks;
  std::int32_t pset = 0;
};

// All-reduce of rank + 1 + extra on the set, by name; must be exact.
void reduce_on(const Job& job, const Set& set, const char* name, std::int64_t extra = 0) {
  std::int64_t value = job.rank() + 1 + extra;
  const kolo_options options = named(name, set.pset);
  expect_status(
      kolo_allreduce(job.context(), &value, &value, 1, KOLO_INT64, KOLO_SUM, &options, nullptr),
      KOLO_OK, "an all-reduce on a set");
  KOLO_EXPECT(value == sum_of(set.ranks) + static_cast<std::int64_t>(set.ranks.size()) * extra);
}

std::vector<Set> pairs_and_world(const Job& job) {
  std::vector<Set> sets = {{{0, 1}}, {{1, 2}}, {{0, 2}}, {{0, 1, 2}}};
  for (std::size_t i = 0; i < 3; ++i) sets[i].pset = job.make_set(sets[i].ranks);
  return sets;
}

// One all-reduce on each of the rank's sets, all submitted before any wait.
void reduce_on_all(const Job& job, const std::vector<Set>& sets, std::size_t first, int round) {
  std::vector<std::int64_t> values(sets.size(), job.rank() + 1 + round);
  std::vector<kolo_request> requests;
  const kolo_options base = named("g");
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const std::size_t at = (first + i) % sets.size();
    if (!has(sets[at].ranks, job.rank())) continue;
    kolo_options options = base;
    options.pset = sets[at].pset;
    requests.push_back(job.submit_raw(options, &values[at], 1, KOLO_INT64));
  }
  expect_status(kolo_wait_all(job.context(), requests.data(), requests.size(), 30'000), KOLO_OK,
                "kolo_wait_all");
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (!has(sets[i].ranks, job.rank())) continue;
    const auto ranks = static_cast<std::int64_t>(sets[i].ranks.size());
    KOLO_EXPECT(values[i] == sum_of(sets[i].ranks) + ranks * round);
  }
}

int s22() {
  const Job job;
  job.expect_size(3);
  const std::vector<Set> sets = pairs_and_world(job);
  const auto rank = static_cast<std::size_t>(job.rank());
  const int rounds = 1000;
  for (int round = 0; round < rounds; ++round) {
    reduce_on_all(job, sets, rank + static_cast<std::size_t>(round) * (rank + 1), round);
  }
  const Stopwatch watch;
  std::vector<kolo_request> requests(3);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::size_t at = (i + rank) % requests.size();
    expect_status(kolo_pset_destroy(job.context(), sets[at].pset, nullptr, &requests[at]), KOLO_OK,
                  "kolo_pset_destroy");
  }
  expect_status(kolo_wait_all(job.context(), requests.data(), requests.size(), 10'000), KOLO_OK,
                "the end of the sets");
  watch.expect_between(0, 2, "the sets were removed");
  job.probe();
  job.shutdown();
  return 0;
}

void make_and_remove(const Job& job, int thread, int times) {
  const std::string name = "maker " + std::to_string(thread);
  for (int i = 0; i < times; ++i) {
    Set set{{0, 1}};
    if (job.rank() == 1) std::swap(set.ranks[0], set.ranks[1]);  // the order says nothing
    set.pset = job.make_set(set.ranks, name.c_str());
    reduce_on(job, set, "inside", i);
    job.end_set(set.pset);
  }
}

int s32() {
  const Job job;
  job.expect_size(2);
  std::atomic<int> makers{4};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      make_and_remove(job, thread, 100);
      --makers;
    });
  }
  threads.emplace_back([&] {
    // On both ranks until both have made all of theirs.
    for (std::int64_t left = 1; left > 0;) {
      std::vector<std::int64_t> values = {job.rank() + 1, makers.load()};
      values = job.reduce("world", values);
      KOLO_EXPECT(values[0] == 3);
      left = values[1];
    }
  });
  for (std::thread& thread : threads) thread.join();
  job.probe();
  job.shutdown();
  return 0;
}

// ---- Beyond the list ------------------------------------------------------------------------

void expect_refused(kolo_status status, std::string_view what) {
  expect_status(status, KOLO_INVALID_ARGUMENT, what);
}

void check_refused_calls(const Job& job, std::int32_t gone) {
  kolo_context* context = job.context();
  std::int64_t value = 1;
  for (const std::int32_t pset : {std::int32_t{-1}, std::int32_t{12345}, gone}) {
    const kolo_options options = named("no set", pset);
    kolo_request request = 1;
    expect_refused(
        kolo_allreduce(context, &value, &value, 1, KOLO_INT64, KOLO_SUM, &options, &request),
        "no such set");
    expect_text({std::to_string(pset)});
    KOLO_EXPECT(request == KOLO_REQUEST_NULL && value == 1);
    expect_refused(kolo_barrier(context, &options, nullptr), "no such set");
    std::size_t count = 0;
    expect_refused(kolo_pset_ranks(context, pset, nullptr, 0, &count), "no such set");
    expect_refused(kolo_pset_destroy(context, pset, nullptr, nullptr), "no such set");
  }
  expect_refused(kolo_pset_destroy(context, 0, nullptr, nullptr), "the world's end");
  std::int32_t made = -7;
  for (const Ranks& bad : {Ranks{}, Ranks{0, 0}, Ranks{0, 99}, Ranks{-1}}) {
    expect_refused(kolo_pset_create(context, bad.data(), bad.size(), &made, nullptr, nullptr),
                   "bad ranks");
  }
  const Ranks good = {0};
  expect_refused(kolo_pset_create(context, good.data(), 1, nullptr, nullptr, nullptr), "null");
  kolo_options scaled = KOLO_OPTIONS_INIT;
  scaled.prescale = 2;
  expect_refused(kolo_pset_create(context, good.data(), 1, &made, &scaled, nullptr), "an option");
  expect_status(kolo_group_begin(context, "open"), KOLO_OK, "kolo_group_begin");
  expect_refused(kolo_pset_create(context, good.data(), 1, &made, nullptr, nullptr), "in a group");
  kolo_group_end(context, nullptr);
  KOLO_EXPECT(made == -7);
}

// Who is not in a set is told so at once, and it concerns nobody else.
int set_rules() {
  const Job job;
  job.expect_size(3);
  Set set{{0, 2}};
  // The same ranks in any order.
  set.pset = job.make_set(job.rank() == 1 ? Ranks{2, 0} : set.ranks, "two");
  Ranks ranks(3, -1);
  std::size_t count = 0;
  expect_status(kolo_pset_ranks(job.context(), set.pset, ranks.data(), 3, &count), KOLO_OK,
                "kolo_pset_ranks");
  KOLO_EXPECT(count == 2 && ranks == (Ranks{0, 2, -1}));
  if (job.rank() == 1) {
    const Stopwatch watch;
    std::int64_t value = 5;
    const kolo_options options = named("mine", set.pset);
    for (int i = 0; i < 3; ++i) {
      expect_refused(
          kolo_allreduce(job.context(), &value, &value, 1, KOLO_INT64, KOLO_SUM, &options, nullptr),
          "a rank that is not in the set");
      expect_text({"1", "0, 2"});
      KOLO_EXPECT(value == 5);
    }
    std::int32_t last = 0;
    const kolo_options joining = named(nullptr, set.pset);
    expect_refused(kolo_join(job.context(), &last, &joining, nullptr), "a join from outside");
    watch.expect_between(0, 1, "the refusals");
  } else {
    for (int i = 0; i < 20; ++i) reduce_on(job, set, "mine", i);
    // A root is named by its rank; one outside of the set is none.
    std::int32_t root_value = job.rank() == 2 ? 22 : 0;
    const kolo_options options = named("root", set.pset);
    expect_status(kolo_broadcast(job.context(), &root_value, &root_value, 1, KOLO_INT32, 2,
                                 &options, nullptr),
                  KOLO_OK, "a broadcast from rank 2");
    KOLO_EXPECT(root_value == 22);
    expect_refused(kolo_broadcast(job.context(), &root_value, &root_value, 1, KOLO_INT32, 1,
                                  &options, nullptr),
                   "a root outside of the set");
  }
  Set wrong{job.rank() == 0 ? Ranks{0} : Ranks{0, 1}};
  std::int32_t none = -7;
  const kolo_options options = named("differs");
  expect_status(kolo_pset_create(job.context(), wrong.ranks.data(), wrong.ranks.size(), &none,
                                 &options, nullptr),
                KOLO_MISMATCH, "a set of other ranks elsewhere");
  expect_text({"'differs'"});
  job.end_set(set.pset);
  check_refused_calls(job, set.pset);
  Set next{{0, 1, 2}};
  next.pset = job.make_set(next.ranks);
  KOLO_EXPECT(next.pset != set.pset);
  reduce_on(job, next, "mine");
  job.end_set(next.pset);
  job.probe();
  job.shutdown();
  return 0;
}

// What all have submitted is finished; what some have not, ends with ABORTED.
int set_in_flight() {
  const Job job;
  job.expect_size(3);
  for (int round = 0; round < 10; ++round) {
    Set set{{0, 1, 2}};
    set.pset = job.make_set(set.ranks);
    std::int64_t whole = job.rank() + 1;
    std::int64_t part = 7;
    const kolo_request all = job.submit_raw(named("all", set.pset), &whole, 1, KOLO_INT64);
    kolo_request some = KOLO_REQUEST_NULL;
    if (job.rank() != round % 3) {
      some = job.submit_raw(named("some", set.pset), &part, 1, KOLO_INT64);
    }
    if (round % 2 == 1) sleep_ms(5 * job.rank());
    kolo_request ended = KOLO_REQUEST_NULL;
    expect_status(kolo_pset_destroy(job.context(), set.pset, nullptr, &ended), KOLO_OK,
                  "kolo_pset_destroy");
    kolo_request late = 1;
    const kolo_options options = named("late", set.pset);
    expect_refused(kolo_barrier(job.context(), &options, &late), "a call after the destroy");
    KOLO_EXPECT(late == KOLO_REQUEST_NULL);
    if (some != KOLO_REQUEST_NULL) job.finish_soon(some, KOLO_ABORTED);
    KOLO_EXPECT(part == 7);
    job.finish(all, KOLO_OK);
    KOLO_EXPECT(whole == 6);
    job.finish(ended, KOLO_OK);
  }
  job.probe();
  job.shutdown();
  return 0;
}

// One thread for each set, on sets that overlap: no order between them, and no deadlock.
int set_threads() {
  const Job job;
  job.expect_size(3);
  std::vector<Set> sets = pairs_and_world(job);
  std::vector<std::thread> threads;
  for (const Set& set : sets) {
    if (!has(set.ranks, job.rank())) continue;
    threads.emplace_back([&job, &set] {
      for (int i = 0; i < 300; ++i) reduce_on(job, set, i % 3 == 0 ? nullptr : "t", i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < 3; ++i) job.end_set(sets[i].pset);
  job.probe();  // nobody leaves early
  job.shutdown();
  return 0;
}

// Operations without a name are numbered by set.
int set_numbers() {
  const Job job;
  job.expect_size(3);
  const std::vector<Set> sets = pairs_and_world(job);
  for (int round = 0; round < 30; ++round) {
    std::vector<kolo_request> requests;
    std::vector<std::vector<std::int64_t>> values(sets.size(), std::vector<std::int64_t>(5));
    for (std::size_t i = 0; i < sets.size(); ++i) {
      const std::size_t at = (i + static_cast<std::size_t>(job.rank() + round)) % sets.size();
      if (!has(sets[at].ranks, job.rank())) continue;
      for (std::size_t n = 0; n < values[at].size(); ++n) {
        values[at][n] = job.rank() + 1 + static_cast<std::int64_t>(n * 100);
        requests.push_back(
            job.submit_raw(named(nullptr, sets[at].pset), &values[at][n], 1, KOLO_INT64));
      }
    }
    expect_status(kolo_wait_all(job.context(), requests.data(), requests.size(), 30'000), KOLO_OK,
                  "kolo_wait_all");
    for (std::size_t i = 0; i < sets.size(); ++i) {
      if (!has(sets[i].ranks, job.rank())) continue;
      const auto ranks = static_cast<std::int64_t>(sets[i].ranks.size());
      for (std::size_t n = 0; n < values[i].size(); ++n) {
        KOLO_EXPECT(values[i][n] ==
                    sum_of(sets[i].ranks) + ranks * static_cast<std::int64_t>(n * 100));
      }
    }
  }
  job.probe();  // nobody leaves early
  job.shutdown();
  return 0;
}

// A callback makes a set, that one's reduces on it, that one's ends it.
struct Chain {
  const Job* job = nullptr;
  Ranks ranks;
  std::int32_t pset = -1;
  std::int64_t value = 0;
  std::atomic<int> stage{0};
};

void go_on(kolo_status status, const char* text, void* user) {
  auto& chain = *static_cast<Chain*>(user);
  if (status != KOLO_OK) fail(std::string("in a callback: ") + text);
  kolo_context* context = chain.job->context();
  kolo_options options = KOLO_OPTIONS_INIT;
  options.callback = go_on;
  options.user = user;
  kolo_request request = KOLO_REQUEST_NULL;
  const int stage = ++chain.stage;
  if (stage == 1) {
    kolo_options blocking = named("blocks");
    expect_status(kolo_pset_create(context, chain.ranks.data(), chain.ranks.size(), &chain.pset,
                                   &blocking, nullptr),
                  KOLO_WOULD_DEADLOCK, "a set made by a blocking call in a callback");
    options.name = "made in a callback";
    status = kolo_pset_create(context, chain.ranks.data(), chain.ranks.size(), &chain.pset,
                              &options, &request);
  } else if (stage == 2) {
    options.name = "on it";
    options.pset = chain.pset;
    status = kolo_allreduce(context, &chain.value, &chain.value, 1, KOLO_INT64, KOLO_SUM, &options,
                            &request);
  } else if (stage == 3) {
    status = kolo_pset_destroy(context, chain.pset, &options, &request);
  }
  expect_status(status, KOLO_OK, "a call in a callback");
  expect_status(kolo_request_free(context, &request), KOLO_OK, "kolo_request_free");
}

int set_callbacks() {
  const Job job;
  for (int round = 0; round < 20; ++round) {
    Chain chain;
    chain.job = &job;
    for (int rank = 0; rank < job.size(); ++rank) chain.ranks.push_back(rank);
    chain.value = job.rank() + 1;
    kolo_options options = named("first");
    options.callback = go_on;
    options.user = &chain;
    expect_status(kolo_barrier(job.context(), &options, nullptr), KOLO_OK, "kolo_barrier");
    const Stopwatch watch;
    while (chain.stage.load() < 4) {
      if (watch.seconds() > 10) fail("the chain stands at " + std::to_string(chain.stage.load()));
      sleep_ms(1);
    }
    KOLO_EXPECT(chain.value == sum_of(chain.ranks));
    job.probe();  // the last callback is over
  }
  job.probe();  // nobody leaves early
  job.shutdown();
  return 0;
}

// Numbers are never used again; nothing grows without bound.
int set_many() {
  const Job job;
  std::set<std::int32_t> seen;
  Ranks all;
  for (int rank = 0; rank < job.size(); ++rank) all.push_back(rank);
  for (int i = 0; i < 300; ++i) {
    Set set{i % 2 == 0 ? all : Ranks{i % job.size()}};
    set.pset = job.make_set(set.ranks);
    KOLO_EXPECT(seen.insert(set.pset).second);
    if (has(set.ranks, job.rank())) reduce_on(job, set, "again", i);
    job.end_set(set.pset);
  }
  job.probe();
  job.shutdown();
  return 0;
}

// A group of which this rank's only member was refused is still told to its set, not the world.
int set_refused_group() {
  const Job job;
  job.expect_size(3);
  const std::int32_t pset = job.make_set({0, 2});
  for (int round = 0; round < 3 && job.rank() != 1; ++round) {
    const Stopwatch watch;
    float value = 1.0F;
    const kolo_options options = named("m", pset);
    const bool wrong = job.rank() == (round % 2 == 0 ? 0 : 2);
    expect_status(kolo_group_begin(job.context(), round == 2 ? nullptr : "G"), KOLO_OK,
                  "kolo_group_begin");
    expect_status(kolo_allreduce(job.context(), wrong ? nullptr : &value, &value, 1, KOLO_FLOAT32,
                                 KOLO_SUM, &options, nullptr),
                  wrong ? KOLO_INVALID_ARGUMENT : KOLO_OK, "a member");
    kolo_request group = KOLO_REQUEST_NULL;
    expect_status(kolo_group_end(job.context(), &group), wrong ? KOLO_INVALID_ARGUMENT : KOLO_OK,
                  "kolo_group_end");
    if (!wrong) job.finish_soon(group, KOLO_MISMATCH);
    watch.expect_between(0, 1, "the refusal");
    KOLO_EXPECT(value == 1.0F);
    reduce_on(job, {{0, 2}, pset}, nullptr, round);
  }
  job.probe();
  job.shutdown();
  return 0;
}

}  // namespace

std::vector<Situation> set_situations() {
  return {{"S22", s22},
          {"S32", s32},
          {"set-rules", set_rules},
          {"set-in-flight", set_in_flight},
          {"set-threads", set_threads},
          {"set-numbers", set_numbers},
          {"set-callbacks", set_callbacks},
          {"set-many", set_many},
          {"set-refused-group", set_refused_group}};
}

}  // namespace kolo::cases
