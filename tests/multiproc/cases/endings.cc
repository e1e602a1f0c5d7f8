// S30, S41, S42, S77, and how ranks learn that another one has ended: by exit, by a signal, by
// kolo_shutdown and by kolo_abort.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

int s30() {
  const Job job;
  job.expect_size(2);
  if (job.rank() == 1) {
    ::sleep(60);
    return 0;
  }
  sleep_ms(1000);
  std::_Exit(1);
}

int s41() {
  const Job job;
  ::_exit(3);
}

// Rank 1 ignores SIGTERM; rank 3 fails when all have joined.
int s42() {
  const Job job;
  job.expect_size(4);
  if (job.rank() == 1) ::signal(SIGTERM, SIG_IGN);
  job.probe();
  job.gather_before_an_end(job.rank() == 3);
  if (job.rank() == 3) std::_Exit(9);
  while (true) ::sleep(60);
}

int s77() {
  const Job job;
  KOLO_EXPECT(job.size() == 1 && job.rank() == 0);
  KOLO_EXPECT(kolo_local_rank(job.context()) == 0 && kolo_local_size(job.context()) == 1);
  const std::vector<float> expected = {1.0F, 2.0F};
  KOLO_EXPECT(job.reduce("g", std::vector<float>{1.0F, 2.0F}) == expected);
  std::vector<float> values = expected;
  job.finish(job.broadcast("b", values.data(), 2, KOLO_FLOAT32, 0), KOLO_OK);
  KOLO_EXPECT(values == expected);
  expect_status(kolo_barrier(job.context(), nullptr, nullptr), KOLO_OK, "kolo_barrier");
  job.shutdown();
  return 0;
}

// What is pending when rank `lost` goes, and everything after that, is PEER_LOST within 1 s, with
// the rank in the text; the program goes on, and leaves with a code of its own.
int survive(const Job& job, int lost) {
  const std::string name = "rank " + std::to_string(lost);
  std::vector<float> values(1000, 1.0F);
  const kolo_request pending = job.submit("pending", values);  // never submitted by `lost`
  job.gather_before_an_end(false);
  const Stopwatch watch;
  job.finish(pending, KOLO_PEER_LOST);
  watch.expect_between(0, 0.3 + 1, "the loss was told");  // it goes 0.2 to 0.3 s from here
  expect_text({name});
  for (const float value : values) KOLO_EXPECT(value == 1.0F);
  const Stopwatch later;
  std::int64_t one = 1;
  for (int i = 0; i < 3; ++i) {
    expect_status(
        kolo_allreduce(job.context(), &one, &one, 1, KOLO_INT64, KOLO_SUM, nullptr, nullptr),
        KOLO_PEER_LOST, "a later call");
    expect_text({name});
    expect_status(kolo_barrier(job.context(), nullptr, nullptr), KOLO_PEER_LOST, "a later barrier");
  }
  expect_status(kolo_health(job.context()), KOLO_PEER_LOST, "kolo_health");
  KOLO_EXPECT(one == 1);
  later.expect_between(0, 1, "later calls failed");
  const Stopwatch farewell;
  expect_status(kolo_shutdown(job.context()), KOLO_PEER_LOST, "kolo_shutdown");
  farewell.expect_between(0, 2, "kolo_shutdown returned");
  // Time for all survivors to look before the launcher ends them for the failed rank.
  std::fprintf(stderr, "survived rank %d\n", job.rank());
  sleep_ms(300);
  return 0;
}

int lost_by(int rank, void (*end)()) {
  const Job job;
  // A launcher's SIGTERM comes right after the loss; it must not cut the checks short.
  if (job.rank() != rank) ::signal(SIGTERM, SIG_IGN);
  job.probe();
  if (job.rank() == rank) {
    job.gather_before_an_end(true);
    sleep_ms(200);
    end();
  }
  return survive(job, rank);
}

int lost_by_exit() {
  return lost_by(1, [] { std::_Exit(0); });  // without kolo_shutdown
}
int lost_by_return() {
  return lost_by(1, [] { std::exit(5); });
}
int lost_by_kill() {
  return lost_by(2, [] { ::raise(SIGKILL); });
}
// A child that was forked and lives on, whatever kolorun asks of it, has inherited every
// descriptor.
int lost_with_a_child() {
  return lost_by(1, [] {
    ::signal(SIGTERM, SIG_IGN);
    if (::fork() != 0) ::raise(SIGKILL);
    ::sleep(20);  // kolorun kills it after the grace time
    std::_Exit(0);
  });
}
int lost_last() {  // on the last rank, wherever that is
  const char* size = std::getenv("KOLO_SIZE");
  return lost_by(std::atoi(size) - 1, [] { ::raise(SIGKILL); });
}

// Rank 1 shuts down while the others wait.
int shutdown_by_one() {
  const Job job;
  job.probe();
  if (job.rank() == 1) {
    sleep_ms(200);
    job.shutdown();
    return 0;
  }
  std::vector<float> values = {1.0F};
  const kolo_request request = job.submit("lonely", values);
  const Stopwatch watch;
  job.finish(request, KOLO_ABORTED);
  watch.expect_between(0, 0.3 + 1, "the shutdown was told");
  expect_text({"rank 1", "kolo_shutdown"});
  KOLO_EXPECT(values[0] == 1.0F);
  const Stopwatch later;
  expect_status(kolo_barrier(job.context(), nullptr, nullptr), KOLO_ABORTED, "a later call");
  expect_text({"rank 1"});
  later.expect_between(0, 1, "the later call failed");
  job.shutdown();
  return 0;
}

// The last rank shuts down with everything in flight: what it has not finished is aborted, all else
// is exact, nobody's context breaks, and every farewell is short.
int shutdown_in_flight() {
  for (int round = 0; round < repetitions(200); ++round) {
    const Job job;
    constexpr int kOperations = 60;
    std::vector<std::vector<float>> values(kOperations);
    std::vector<kolo_request> requests;
    const int leaver = round % job.size();
    for (int i = 0; i < kOperations; ++i) {
      const auto at = static_cast<std::size_t>(i);
      values[at].assign(at % 3 == 0 ? 100000 : 1000, static_cast<float>(job.rank() + 1));
      const std::string name = "g" + std::to_string(i);
      const kolo_options options = named(name.c_str());
      kolo_request request = KOLO_REQUEST_NULL;
      const kolo_status submitted =
          kolo_allreduce(job.context(), values[at].data(), values[at].data(), values[at].size(),
                         KOLO_FLOAT32, KOLO_SUM, &options, &request);
      KOLO_EXPECT(submitted == KOLO_OK || submitted == KOLO_ABORTED);
      requests.push_back(request);
    }
    const float sum = static_cast<float>(job.size() * (job.size() + 1) / 2);
    if (job.rank() != leaver) {
      for (std::size_t i = 0; i < requests.size(); ++i) {
        if (requests[i] == KOLO_REQUEST_NULL) continue;
        const kolo_status status = kolo_wait(job.context(), &requests[i], KOLO_FOREVER);
        KOLO_EXPECT(status == KOLO_OK || status == KOLO_ABORTED);
        // Of the leaver, or of another that has left because of it.
        if (status == KOLO_ABORTED) expect_text({"rank "});
        if (status == KOLO_OK) KOLO_EXPECT(values[i].front() == sum && values[i].back() == sum);
      }
    }
    const Stopwatch farewell;
    job.shutdown();
    farewell.expect_between(0, 2, "kolo_shutdown");
  }
  return 0;
}

// All waited for on every rank before anyone leaves: shutdown in any order is clean.
int shutdown_in_turn() {
  const Job job;
  job.probe();
  sleep_ms(60 * job.rank());
  const Stopwatch watch;
  job.shutdown();
  watch.expect_between(0, 2, "kolo_shutdown");
  return 0;
}

// Rank 1 aborts; a waiter on another rank wakes, and so does another thread's on rank 1 itself.
int abort_wakes_waiters() {
  const Job job;
  job.probe();
  const auto wait = [&](const char* name) {
    std::int64_t value = 1;
    const kolo_options options = named(name);
    const Stopwatch watch;
    expect_status(
        kolo_allreduce(job.context(), &value, &value, 1, KOLO_INT64, KOLO_SUM, &options, nullptr),
        KOLO_ABORTED, "the wait");
    watch.expect_between(0, 0.3 + 1, "the abort was told");
    expect_text({"rank 1", "the loss went up"});
    KOLO_EXPECT(value == 1);
  };
  const std::string name = "of rank " + std::to_string(job.rank());
  std::thread waiter([&] { wait(name.c_str()); });
  if (job.rank() == 1) {
    sleep_ms(200);
    const Stopwatch watch;
    expect_status(kolo_abort(job.context(), "the loss went up"), KOLO_OK, "kolo_abort");
    watch.expect_between(0, 1, "kolo_abort returned");
  }
  waiter.join();
  expect_status(kolo_health(job.context()), KOLO_ABORTED, "kolo_health");
  expect_status(kolo_barrier(job.context(), nullptr, nullptr), KOLO_ABORTED, "a later call");
  expect_text({"rank 1", "the loss went up"});
  expect_status(kolo_shutdown(job.context()), KOLO_ABORTED, "kolo_shutdown");
  return 0;
}

// Rounds of init and shutdown in one process, all ranks together: nothing is left of them.
int rounds() {
  constexpr int kFirst = 10;
  Holdings before;
  for (int round = 0; round < repetitions(1000); ++round) {
    if (round == kFirst) before = Holdings::now();
    const Job job;
    sleep_ms((job.rank() * 7 + round) % 5);
    for (int i = 0; i < 5; ++i) job.probe();
    job.shutdown();
  }
  Holdings::expect_as(before);
  return 0;
}

// Steps until somebody ends it; rank 1 says so and kills itself in the middle.
int steps_until_killed() {
  const Job job;
  std::vector<float> values(100, 1.0F);
  for (int step = 0; step < 200; ++step) {
    job.finish(job.submit("weights", values), KOLO_OK);
    job.finish(job.submit("bias \"q\"\\\n\x01\xff", values, KOLO_AVG), KOLO_OK);
  }
  sleep_ms(1500);  // a trace is at most a second behind, and all are through their steps
  if (job.rank() == 1) ::raise(SIGKILL);
  sleep_ms(500);
  return 0;
}

// A stall on the last rank, which another host may hold: the abort names it everywhere.
int stall_last() {
  const Job job;
  const int last = job.size() - 1;
  job.probe();
  if (job.rank() == last) {
    sleep_ms(2500);  // stall limit 1.5 s; its own submission then fails alone
  }
  std::vector<float> values = {1.0F};
  const Stopwatch watch;
  job.finish(job.submit("late", values), KOLO_TIMED_OUT);
  if (job.rank() == last)
    watch.expect_between(0, 1, "the late rank's wait");
  else
    watch.expect_between(1.3, 2.5, "the stalled wait");
  expect_text({"'late'", "missing on rank " + std::to_string(last)});
  KOLO_EXPECT(values[0] == 1.0F);
  job.probe();
  job.shutdown();
  return 0;
}

}  // namespace

std::vector<Situation> ending_situations() {
  return {{"S30", s30},
          {"S41", s41},
          {"S42", s42},
          {"S77", s77},
          {"lost-by-exit", lost_by_exit},
          {"lost-by-return", lost_by_return},
          {"lost-by-kill", lost_by_kill},
          {"lost-with-a-child", lost_with_a_child},
          {"lost-last", lost_last},
          {"shutdown-by-one", shutdown_by_one},
          {"shutdown-in-turn", shutdown_in_turn},
          {"shutdown-in-flight", shutdown_in_flight},
          {"abort", abort_wakes_waiters},
          {"rounds", rounds},
          {"steps-until-killed", steps_until_killed},
          {"stall-last", stall_last}};
}

}  // namespace kolo::cases
