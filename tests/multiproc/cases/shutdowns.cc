// kolo_shutdown in every state of a context: with a dead peer that nobody has noticed, with a
// frozen one, while others abort, during a join, inside a group, from two threads at once, and
// among threads that wait and ask. And exits without it, or with it in the last moment.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

bool is_one_of(kolo_status status, std::initializer_list<kolo_status> expected) {
  return std::find(expected.begin(), expected.end(), status) != expected.end();
}

// Rank 1 dies; the others then call nothing but kolo_shutdown: with nothing under way, or with
// much.
int with_a_dead_peer(bool in_flight) {
  const Job job;
  job.probe();
  ::signal(SIGTERM, SIG_IGN);  // the launcher's, for the dead rank
  std::vector<std::vector<float>> values(30, std::vector<float>(100'000, 1.0F));
  std::vector<kolo_request> requests;
  if (in_flight) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::string name = "g" + std::to_string(i);
      const kolo_options options = named(name.c_str());
      requests.push_back(KOLO_REQUEST_NULL);  // refused once another has gone
      static_cast<void>(kolo_allreduce(job.context(), values[i].data(), values[i].data(),
                                       values[i].size(), KOLO_FLOAT32, KOLO_SUM, &options,
                                       &requests.back()));
    }
  }
  job.gather_before_an_end(job.rank() == 1);
  if (job.rank() == 1) ::raise(SIGKILL);
  const Stopwatch watch;
  const kolo_status status = kolo_shutdown(job.context());
  watch.expect_between(0, 2, "kolo_shutdown returned");
  // A survivor that has left first is no reason, and neither has it been told of rank 1 then.
  if (!is_one_of(status, {KOLO_PEER_LOST, KOLO_OK})) expect_status(status, KOLO_PEER_LOST, "leave");
  if (status == KOLO_PEER_LOST) expect_text({"rank 1"});
  for (kolo_request& request : requests) {
    expect_status(kolo_wait(job.context(), &request, 0), KOLO_NOT_INITIALIZED, "a late wait");
  }
  std::fprintf(stderr, "survived rank %d\n", job.rank());
  sleep_ms(300);
  return 0;
}

// Whether or not somebody has waited for it.
bool has_ended(std::int32_t pid) {
  const char state = state_of(pid);
  return state == '\0' || state == 'Z';
}

// Rank 1 is frozen when the others leave, and continued when they have: nobody waits for ever, and
// rank 1 finds that it is alone.
int of_a_frozen_peer() {
  const Job job;
  const std::vector<std::int32_t> pids = job.pids();
  job.gather_before_an_end(job.rank() == 1);
  if (job.rank() == 1) {
    ::raise(SIGSTOP);
    std::int64_t value = 1;
    const Stopwatch watch;
    const kolo_status status =
        kolo_allreduce(job.context(), &value, &value, 1, KOLO_INT64, KOLO_SUM, nullptr, nullptr);
    KOLO_EXPECT(is_one_of(status, {KOLO_ABORTED, KOLO_PEER_LOST}));
    static_cast<void>(kolo_shutdown(job.context()));
    watch.expect_between(0, 2, "the continued rank was told, and left");
    return 0;
  }
  sleep_ms(200);
  const Stopwatch watch;
  const kolo_status status = kolo_shutdown(job.context());
  KOLO_EXPECT(is_one_of(status, {KOLO_OK, KOLO_PEER_LOST}));
  watch.expect_between(0, 6, "kolo_shutdown returned");  // shutdown_timeout_ms is 5 s
  sleep_ms(200);                                         // the others do, too
  KOLO_EXPECT(::kill(pids[1], SIGCONT) == 0 || errno == ESRCH);
  // kolorun would end a lost rank that is the last one.
  for (int i = 0; i < 500 && !has_ended(pids[1]); ++i) sleep_ms(10);
  return 0;
}

struct Told {
  std::atomic<int> calls{0};
  std::atomic<kolo_status> status{KOLO_OK};
};

void note_end(kolo_status status, const char*, void* user) {
  auto& told = *static_cast<Told*>(user);
  told.status = status;
  ++told.calls;
}

void stand_still(kolo_status, const char*, void* continued) {
  ::raise(SIGSTOP);
  *static_cast<std::atomic<bool>*>(continued) = true;
}

// 2 ranks. `frozen` stands still, and is not given up yet, when the other one leaves with an
// operation of both that has started, and one of its own that has not: the one is cut off when
// shutdown_timeout_ms have passed, and who leaves is told so; both end with KOLO_ABORTED.
int cuts_off(int frozen) {
  constexpr std::size_t kCount = 64'000'000;
  const Job job;
  job.expect_size(2);
  const std::vector<std::int32_t> pids = job.pids();
  std::vector<float> big(kCount, 1.0F);
  job.finish(job.submit("big", big), KOLO_OK);  // known: it starts without a word from the other
  job.gather_before_an_end(job.rank() == frozen);
  kolo_options options = named("big");
  Told told[2];
  options.callback = note_end;
  options.user = &told[0];
  kolo_request started = job.submit_raw(options, big.data(), big.size(), KOLO_FLOAT32);
  // Operations start in their order; this small one is done long before the other. Who stands still
  // does so in its callback, and waits for nothing: so the one thread that moves the data stops.
  std::vector<float> small(1000, 1.0F);
  options = named("after");
  std::atomic<bool> continued{false};
  if (job.rank() == frozen) {
    options.callback = stand_still;
    options.user = &continued;
  }
  const kolo_request after = job.submit_raw(options, small.data(), small.size(), KOLO_FLOAT32);
  if (job.rank() == frozen) {
    while (!continued) sleep_ms(1);
    const kolo_status status = kolo_barrier(job.context(), nullptr, nullptr);
    KOLO_EXPECT(is_one_of(status, {KOLO_ABORTED, KOLO_PEER_LOST}));
    const Stopwatch watch;
    static_cast<void>(kolo_shutdown(job.context()));
    watch.expect_between(0, 2, "the continued rank left");
    return 0;
  }
  job.finish(after, KOLO_OK);
  float value = 1.0F;
  options = named("lonely");
  options.callback = note_end;
  options.user = &told[1];
  kolo_request waiting = job.submit_raw(options, &value, 1, KOLO_FLOAT32);
  std::thread waiter([&] {
    for (kolo_request request : {started, waiting}) {
      const kolo_status status = kolo_wait(job.context(), &request, KOLO_FOREVER);
      KOLO_EXPECT(is_one_of(status, {KOLO_ABORTED, KOLO_NOT_INITIALIZED}));
    }
  });
  const std::int32_t still = pids.at(static_cast<std::size_t>(frozen));
  for (int i = 0; i < 1000 && state_of(still) != 'T'; ++i) sleep_ms(10);
  KOLO_EXPECT(state_of(still) == 'T');
  sleep_ms(100);  // for what this rank can do without it
  const Stopwatch watch;
  expect_status(kolo_shutdown(job.context()), KOLO_ABORTED, "kolo_shutdown");
  expect_text({"shutdown_timeout_ms (500)", ": 1, the first of them allreduce 'big'",
               "KOLO_SHUTDOWN_TIMEOUT_MS"});
  watch.expect_between(0.4, 2, "kolo_shutdown returned");
  waiter.join();
  for (const Told& one : told) KOLO_EXPECT(one.calls == 1 && one.status == KOLO_ABORTED);
  KOLO_EXPECT(value == 1.0F);
  KOLO_EXPECT(::kill(still, SIGCONT) == 0);
  return 0;
}

// Some ranks abort while others leave.
int amid_aborts() {
  for (int round = 0; round < repetitions(100); ++round) {
    const Job job;
    std::vector<float> values(1000, 1.0F);
    const std::string name = "only on rank " + std::to_string(job.rank());
    const kolo_options options = named(name.c_str());
    kolo_request request = KOLO_REQUEST_NULL;
    const kolo_status submitted =
        kolo_allreduce(job.context(), values.data(), values.data(), values.size(), KOLO_FLOAT32,
                       KOLO_SUM, &options, &request);
    KOLO_EXPECT(is_one_of(submitted, {KOLO_OK, KOLO_ABORTED}));
    if ((job.rank() + round) % 2 == 0) {
      const kolo_status status = kolo_abort(job.context(), "enough");
      KOLO_EXPECT(is_one_of(status, {KOLO_OK, KOLO_ABORTED}));
    }
    const Stopwatch watch;
    const kolo_status status = kolo_shutdown(job.context());
    KOLO_EXPECT(is_one_of(status, {KOLO_OK, KOLO_ABORTED}));
    watch.expect_between(0, 2, "kolo_shutdown returned");
    expect_status(kolo_wait(job.context(), &request, 0), KOLO_NOT_INITIALIZED, "a late wait");
  }
  return 0;
}

// Rank 1 joins and leaves before anyone else has joined; what the others wait for ends.
int in_a_join() {
  const Job job;
  job.probe();
  if (job.rank() == 1) {
    std::int32_t last = -1;
    kolo_request join = KOLO_REQUEST_NULL;
    expect_status(kolo_join(job.context(), &last, nullptr, &join), KOLO_OK, "kolo_join");
    sleep_ms(100);
    std::thread waiter([&] {
      kolo_request copy = join;
      const kolo_status status = kolo_wait(job.context(), &copy, KOLO_FOREVER);
      KOLO_EXPECT(is_one_of(status, {KOLO_ABORTED, KOLO_NOT_INITIALIZED}));
    });
    sleep_ms(100);
    const Stopwatch watch;
    job.shutdown();
    watch.expect_between(0, 2, "kolo_shutdown");
    waiter.join();
    return 0;
  }
  sleep_ms(400);
  std::int32_t last = -1;
  const Stopwatch watch;
  expect_status(kolo_join(job.context(), &last, nullptr, nullptr), KOLO_ABORTED, "kolo_join");
  watch.expect_between(0, 1, "the join ended");
  expect_text({"rank 1"});
  job.shutdown();
  return 0;
}

// A group that is open when its context ends is over, too.
int in_a_group() {
  const Job job;
  job.probe();
  float value = 1.0F;
  expect_status(kolo_group_begin(job.context(), "never ended"), KOLO_OK, "kolo_group_begin");
  expect_status(
      kolo_allreduce(job.context(), &value, &value, 1, KOLO_FLOAT32, KOLO_SUM, nullptr, nullptr),
      KOLO_OK, "a member");
  std::thread([&] { job.probe(); }).join();  // all have come so far
  job.shutdown();
  expect_status(kolo_group_end(job.context(), nullptr), KOLO_NOT_INITIALIZED, "kolo_group_end");
  KOLO_EXPECT(value == 1.0F);
  const Job again;  // the thread has no group open there
  again.probe();
  again.shutdown();
  return 0;
}

// One operation of a process set after the other.
struct Lane {
  std::int32_t pset = 0;
  std::string name;
  bool holds_rank_3 = false;
  std::vector<float> input, output;
  kolo_request request = KOLO_REQUEST_NULL;

  [[nodiscard]] kolo_status wait(const Job& job) {
    if (request == KOLO_REQUEST_NULL) return KOLO_OK;
    return kolo_wait(job.context(), &request, KOLO_FOREVER);
  }
  [[nodiscard]] kolo_status begin(const Job& job, std::size_t count) {
    const kolo_options options = named(name.c_str(), pset);
    return kolo_alltoall(job.context(), input.data(), output.data(), count, KOLO_FLOAT32, &options,
                         &request);
  }
};

// Two lanes of each set that this rank is in.
std::vector<Lane> lanes_of(const Job& job, const std::vector<std::vector<std::int32_t>>& sets,
                           std::size_t count) {
  std::vector<Lane> lanes;
  for (const std::vector<std::int32_t>& ranks : sets) {
    const std::int32_t pset = job.make_set(ranks);
    if (std::find(ranks.begin(), ranks.end(), job.rank()) == ranks.end()) continue;
    for (const char* name : {"one", "two"}) {
      const std::size_t elements = count * ranks.size();
      lanes.push_back({pset, name, ranks.back() == 3,
                       std::vector<float>(elements, static_cast<float>(job.rank())),
                       std::vector<float>(elements), KOLO_REQUEST_NULL});
    }
  }
  return lanes;
}

// Rank 3 leaves, with operations in flight that some have begun beyond its part, while the others
// keep sets without it busy all the time: it does not wait for them, nor do they take notice when
// its process ends.
int among_busy_sets() {
  constexpr std::size_t kCount = 30'000;
  const Job job;
  job.expect_size(4);
  std::vector<Lane> lanes =
      lanes_of(job, {{0, 1, 2}, {0, 1}, {1, 2}, {0, 2}, {0, 3}, {1, 2, 3}}, kCount);
  const Stopwatch watch;
  bool rank_3_is_there = true;
  for (bool goes_on = true; goes_on;) {
    for (Lane& lane : lanes) {
      if (lane.holds_rank_3 && !rank_3_is_there) continue;
      kolo_status status = lane.wait(job);
      if (status == KOLO_OK) status = lane.begin(job, kCount);
      if (lane.holds_rank_3 && status == KOLO_ABORTED) {
        rank_3_is_there = false;
      } else {
        expect_status(status, KOLO_OK, "an operation of a set that lives");
      }
    }
    if (job.rank() == 3) {
      if (watch.seconds() < 0.5) continue;
      const Stopwatch farewell;
      job.shutdown();
      farewell.expect_between(0, 1, "kolo_shutdown of a rank that the others do not need");
      return 0;
    }
    std::int64_t late = watch.seconds() > 2.5 ? 1 : 0;
    const kolo_options options = named("late", lanes.front().pset);  // {0, 1, 2}
    expect_status(
        kolo_allreduce(job.context(), &late, &late, 1, KOLO_INT64, KOLO_MAX, &options, nullptr),
        KOLO_OK, "the word whether it goes on");
    goes_on = late == 0;
  }
  for (Lane& lane : lanes) KOLO_EXPECT(is_one_of(lane.wait(job), {KOLO_OK, KOLO_ABORTED}));
  expect_status(kolo_barrier(job.context(), nullptr, nullptr), KOLO_ABORTED, "of the world");
  expect_text({"rank 3"});
  job.shutdown();
  return 0;
}

// A call of rank `refuser` is refused, and it leaves at once; the others come to theirs at
// different times, and get the error that they would get if it stayed. The name is new, or known.
int after_a_refused_call(int refuser, bool is_known) {
  const Job job;
  std::vector<float> values(is_known ? 4 : 1000, 1.0F);
  if (is_known) job.reduce("g", values);
  job.probe();
  const kolo_options options = named("g");
  if (job.rank() == refuser) {
    expect_status(kolo_allreduce(job.context(), values.data(), values.data(), values.size(),
                                 static_cast<kolo_dtype>(99), KOLO_SUM, &options, nullptr),
                  KOLO_INVALID_ARGUMENT, "a data type that there is not");
    const Stopwatch farewell;
    job.shutdown();
    farewell.expect_between(0, 1, "kolo_shutdown");
    return 0;
  }
  sleep_ms(100 * job.rank());
  expect_status(kolo_allreduce(job.context(), values.data(), values.data(), values.size(),
                               KOLO_FLOAT32, KOLO_SUM, &options, nullptr),
                KOLO_MISMATCH, "the others' call");
  expect_text({"rank " + std::to_string(refuser)});
  sleep_ms(300);  // that rank leaves
  expect_status(kolo_barrier(job.context(), nullptr, nullptr), KOLO_ABORTED, "a later call");
  job.shutdown();
  return 0;
}

// The others never come to the call: the farewell does not wait for long.
int after_a_call_of_its_own() {
  const Job job;
  job.probe();
  if (job.rank() == 1) {
    float value = 1.0F;
    expect_status(kolo_allreduce(job.context(), &value, &value, 1, static_cast<kolo_dtype>(99),
                                 KOLO_SUM, nullptr, nullptr),
                  KOLO_INVALID_ARGUMENT, "a data type that there is not");
    const Stopwatch farewell;
    job.shutdown();
    farewell.expect_between(0.3, 1, "kolo_shutdown");
    return 0;
  }
  while (kolo_health(job.context()) == KOLO_OK) sleep_ms(1);
  expect_status(kolo_barrier(job.context(), nullptr, nullptr), KOLO_ABORTED, "a later call");
  job.shutdown();
  return 0;
}

// Two threads of each rank leave at once, while others wait, test and submit: one leaves, the other
// is told that it is over, all return.
int from_two_threads() {
  for (int round = 0; round < repetitions(100); ++round) {
    const Job job;
    job.probe();
    std::atomic<int> left{0}, late{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        const kolo_status status = kolo_shutdown(job.context());
        KOLO_EXPECT(is_one_of(status, {KOLO_OK, KOLO_NOT_INITIALIZED}));
        (status == KOLO_OK ? left : late).fetch_add(1);
      });
    }
    threads.emplace_back([&] {
      float value = 1.0F;
      const std::string name = "only on rank " + std::to_string(job.rank());
      const kolo_options options = named(name.c_str());
      const kolo_status status = kolo_allreduce(job.context(), &value, &value, 1, KOLO_FLOAT32,
                                                KOLO_SUM, &options, nullptr);
      KOLO_EXPECT(is_one_of(status, {KOLO_ABORTED, KOLO_NOT_INITIALIZED}));
      KOLO_EXPECT(value == 1.0F);
    });
    threads.emplace_back([&] {
      const Stopwatch watch;
      while (kolo_health(job.context()) != KOLO_NOT_INITIALIZED) {
        if (watch.seconds() > 10) fail("the context does not end");
      }
    });
    for (std::thread& thread : threads) thread.join();
    KOLO_EXPECT(left == 1 && late == 1);
  }
  return 0;
}

// main returns, or exit() is called by another thread, with everything in flight, a thread inside
// of a wait, and no shutdown.
int exit_in_flight() {
  // What is in flight is the program's to keep: never freed, as exit() would free what is static.
  static auto& values = *new std::vector(40, std::vector<float>(100'000, 1.0F));
  std::atexit([] { sleep_ms(30); });  // runs last, long after those of the libraries that kolo uses
  const Job job;
  job.gather_before_an_end(job.rank() == 2);  // the first to go
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string name = "g" + std::to_string(i);
    const kolo_options options = named(name.c_str());
    kolo_request request = KOLO_REQUEST_NULL;  // PEER_LOST once another has gone
    static_cast<void>(kolo_allreduce(job.context(), values[i].data(), values[i].data(),
                                     values[i].size(), KOLO_FLOAT32, KOLO_SUM, &options, &request));
  }
  static kolo_request waited = KOLO_REQUEST_NULL;
  if (job.rank() == 0) {
    const kolo_options options = named("that no other rank submits");
    static float value = 1.0F;
    static_cast<void>(kolo_allreduce(job.context(), &value, &value, 1, KOLO_FLOAT32, KOLO_SUM,
                                     &options, &waited));
    std::thread([context = job.context()] {
      static_cast<void>(kolo_wait(context, &waited, KOLO_FOREVER));
    }).detach();
  }
  if (job.rank() < 2) sleep_ms(20);
  if (job.rank() == 2) std::thread([] { std::exit(0); }).join();
  return 0;
}

// A context that a static variable holds, which was there before all that kolo and the libraries
// beneath it have made: it goes on working, and takes leave, when those run their exit handlers.
struct StaticContext {
  kolo_context* context = nullptr;
  ~StaticContext() {
    if (context == nullptr) return;
    std::int64_t one = 1;
    const kolo_options options = named("at the end");
    expect_status(kolo_allreduce(context, &one, &one, 1, KOLO_INT64, KOLO_SUM, &options, nullptr),
                  KOLO_OK, "a sum of the exit's");
    KOLO_EXPECT(one == kolo_size(context));
    std::vector<float> more(200'000, 1.0F);
    expect_status(kolo_allreduce(context, more.data(), more.data(), more.size(), KOLO_FLOAT32,
                                 KOLO_SUM, nullptr, nullptr),
                  KOLO_OK, "a large sum of the exit's");
    expect_status(kolo_shutdown(context), KOLO_OK, "the exit's kolo_shutdown");
    expect_status(kolo_barrier(context, nullptr, nullptr), KOLO_NOT_INITIALIZED, "a later call");
    expect_text({"kolo_barrier", "shut down"});
  }
};

int static_context() {
  static StaticContext holder;
  expect_status(kolo_init(nullptr, &holder.context), KOLO_OK, "kolo_init");
  expect_status(kolo_barrier(nullptr, nullptr, nullptr), KOLO_INVALID_ARGUMENT, "a bad call");
  return 0;
}

}  // namespace

std::vector<Situation> shutdown_situations() {
  return {{"shutdown-dead-peer", [] { return with_a_dead_peer(false); }},
          {"shutdown-dead-peer-in-flight", [] { return with_a_dead_peer(true); }},
          {"shutdown-frozen-peer", of_a_frozen_peer},
          {"shutdown-cuts-off-0", [] { return cuts_off(1); }},
          {"shutdown-cuts-off-1", [] { return cuts_off(0); }},
          {"shutdown-amid-aborts", amid_aborts},
          {"static-context", static_context},
          {"exit-in-flight", exit_in_flight},
          {"shutdown-in-join", in_a_join},
          {"shutdown-among-busy-sets", among_busy_sets},
          {"shutdown-in-group", in_a_group},
          {"shutdown-refused-0", [] { return after_a_refused_call(0, false); }},
          {"shutdown-refused-1", [] { return after_a_refused_call(1, false); }},
          {"shutdown-refused-known", [] { return after_a_refused_call(1, true); }},
          {"shutdown-refused-alone", after_a_call_of_its_own},
          {"shutdown-from-two-threads", from_two_threads}};
}

}  // namespace kolo::cases
