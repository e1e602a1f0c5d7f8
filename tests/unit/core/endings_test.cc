// Many waiters, and the ways in which contexts end.
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>

#include "tests/unit/core/ranks.h"

namespace kolo::internal {
namespace {

using ::testing::HasSubstr;

// Several threads per rank wait at once: driving passes from one to the next.
TEST(Driving, PassesBetweenWaitingThreads) {
  constexpr int kThreads = 4;
  constexpr int kSteps = 50;
  Ranks ranks(2);
  ranks.on_all([](Context& context) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&context, t] {
        const std::string name = "t" + std::to_string(t);
        for (int step = 0; step < kSteps; ++step) {
          std::vector<std::int32_t> values(static_cast<std::size_t>(1 + 100 * t), step + t);
          const Status status = context.run(sum_of(name, values));
          ASSERT_TRUE(status.is_ok()) << status.to_string();
          for (const std::int32_t value : values) ASSERT_EQ(value, 2 * (step + t));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// The driver leaves first: who still waits must go on without it.
TEST(Driving, IsHandedOverWhenTheDriverLeaves) {
  Ranks ranks(2);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::int32_t> first[2] = {{1}, {1}};
    std::vector<std::int32_t> second[2] = {{2}, {2}};
    std::thread waiter_one([&] { EXPECT_TRUE(ranks[0].run(sum_of("one", first[0])).is_ok()); });
    std::thread waiter_two([&] { EXPECT_TRUE(ranks[0].run(sum_of("two", second[0])).is_ok()); });
    const bool reverse = round % 2 != 0;
    EXPECT_TRUE(ranks[1].run(reverse ? sum_of("two", second[1]) : sum_of("one", first[1])).is_ok());
    std::this_thread::sleep_for(2ms);
    EXPECT_TRUE(ranks[1].run(reverse ? sum_of("one", first[1]) : sum_of("two", second[1])).is_ok());
    waiter_one.join();
    waiter_two.join();
    EXPECT_EQ(first[0][0], 2);
    EXPECT_EQ(second[0][0], 4);
  }
}

// A wake-up that is missed heals after 1 s; few rounds may take that long on a busy machine.
constexpr auto kSlow = 800ms;
constexpr int kSlowRoundsAllowed = 3;

template <typename Body>
int count_slow(int rounds, const Body& body) {
  int slow = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    body();
    if (std::chrono::steady_clock::now() - start > kSlow) ++slow;
  }
  return slow;
}

// The driver sleeps in its own wait while another thread submits and waits: it must hear of that.
TEST(Driving, ASleepingDriverHearsOfAnotherThreadsSubmission) {
  Ranks ranks(2);
  const int slow = count_slow(20, [&] {
    std::vector<std::int32_t> first[2] = {{1}, {1}};
    std::vector<std::int32_t> second[2] = {{2}, {2}};
    std::thread driver([&] { EXPECT_TRUE(ranks[1].run(sum_of("one", first[1])).is_ok()); });
    std::this_thread::sleep_for(20ms);  // asleep by now
    std::thread other([&] { EXPECT_TRUE(ranks[1].run(sum_of("two", second[1])).is_ok()); });
    EXPECT_TRUE(ranks[0].run(sum_of("two", second[0])).is_ok());
    EXPECT_TRUE(ranks[0].run(sum_of("one", first[0])).is_ok());
    driver.join();
    other.join();
  });
  EXPECT_LE(slow, kSlowRoundsAllowed);
}

TEST(Driving, ABackgroundAloneCompletesWhatNobodyWaitsFor) {
  Ranks ranks(3);
  std::vector<std::int32_t> values[3] = {{1}, {2}, {3}};
  std::atomic<int> done{0};
  for (int rank = 0; rank < 3; ++rank) {
    Submission submission = sum_of("x", values[rank]);
    submission.callback = [&](const Status& status) { done += status.is_ok() ? 1 : 100; };
    submit(ranks[rank], std::move(submission));
  }
  for (int i = 0; i < 4000 && done < 3; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(done, 3);
  for (const auto& mine : values) EXPECT_EQ(mine[0], 6);
}

TEST(Endings, ShutdownEndsWaitersHereAndElsewhere) {
  Ranks ranks(3);
  std::vector<std::thread> waiters;
  for (int rank = 0; rank < 3; ++rank) {
    waiters.emplace_back([&, rank] {
      // Rank 2 never submits the first; nobody else submits rank 2's own.
      const Status status = ranks[rank].run(barrier(rank == 2 ? "mine" : "theirs"));
      expect_code(status, StatusCode::kAborted);
      EXPECT_THAT(status.text(), HasSubstr("kolo_shutdown"));
    });
  }
  std::this_thread::sleep_for(100ms);
  std::vector<std::thread> leavers;
  leavers.emplace_back([&] { EXPECT_TRUE(ranks[2].shutdown().is_ok()); });
  for (std::thread& waiter : waiters) waiter.join();
  expect_code(ranks[0].run(barrier()), StatusCode::kAborted);
  for (int rank = 0; rank < 2; ++rank) {
    leavers.emplace_back([&, rank] { EXPECT_TRUE(ranks[rank].shutdown().is_ok()); });
  }
  for (std::thread& leaver : leavers) leaver.join();
  for (int rank = 0; rank < 3; ++rank) {
    expect_code(ranks[rank].shutdown(), StatusCode::kNotInitialized);
  }
}

TEST(Endings, InAnyOrderWithNothingPending) {
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}, {1, 0, 2}}) {
    Ranks ranks(3);
    ranks.on_all(probe);
    std::vector<std::thread> leavers;
    for (const int rank : order) {
      leavers.emplace_back([&, rank] { EXPECT_TRUE(ranks[rank].shutdown().is_ok()); });
      std::this_thread::sleep_for(20ms);
    }
    for (std::thread& leaver : leavers) leaver.join();
  }
}

TEST(Endings, AbortIsHeardEverywhere) {
  Ranks ranks(3);
  std::vector<std::thread> waiters;
  for (int rank = 0; rank < 3; ++rank) {
    waiters.emplace_back([&, rank] {
      const Status status = ranks[rank].run(barrier("only " + std::to_string(rank)));
      expect_code(status, StatusCode::kAborted);
      EXPECT_THAT(status.text(), HasSubstr("rank 1"));
      EXPECT_THAT(status.text(), HasSubstr("enough"));
    });
  }
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(ranks[1].abort("enough").is_ok());
  for (std::thread& waiter : waiters) waiter.join();
  for (int rank = 0; rank < 3; ++rank) {
    expect_code(ranks[rank].health(), StatusCode::kAborted);
    expect_code(ranks[rank].run(barrier()), StatusCode::kAborted);
  }
}

// A context that is destroyed under its peers' waits is one that has shut down.
TEST(Endings, ADestroyedContextHasShutDown) {
  Ranks ranks(2);
  ranks.on_all(probe);
  std::thread destroyer([&] { ranks.destroy(1); });
  const Status status = ranks[0].run(barrier("never"));
  expect_code(status, StatusCode::kAborted);
  EXPECT_THAT(status.text(), HasSubstr("rank 1"));
  ranks.destroy(0);
  destroyer.join();
}

TEST(Endings, ShutdownDoesNotWaitForAWakeUp) {
  const int slow = count_slow(20, [] {
    Ranks ranks(3);
    ranks.on_all(probe);
    ranks.on_all([](Context& context) { EXPECT_TRUE(context.shutdown().is_ok()); });
  });
  EXPECT_LE(slow, kSlowRoundsAllowed);
}

int open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}
int live_threads() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

TEST(Endings, RoundsLeaveNothingBehind) {
  constexpr int kRounds = 100;
  Ranks ranks(3);
  ranks.stop();
  int descriptors = 0;
  int threads = 0;
  for (int round = 1; round <= kRounds; ++round) {
    ranks.start();
    ranks.on_all([](Context& context) {
      for (int i = 0; i < 5; ++i) probe(context);
      EXPECT_TRUE(context.shutdown().is_ok());
    });
    ranks.stop();
    // The server notices the ends of its connections in its own time.
    if (round == 2) {
      std::this_thread::sleep_for(300ms);
      descriptors = open_descriptors();
      threads = live_threads();
    }
  }
  for (int i = 0; i < 200 && open_descriptors() != descriptors; ++i) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(live_threads(), threads);
}

// Options that shape plans are rank 0's; several jobs in one process do not meet.
TEST(Endings, SeveralJobsInOneProcess) {
  Ranks one(2, {{"algorithm", "ring"}});
  Ranks other(3, {{"fusion_threshold_bytes", "0"}});
  one.on_all(probe);
  other.on_all(probe);
  one.on_all(probe);
  EXPECT_THAT(one[1].info_json(), HasSubstr("\"algorithm\":\"ring\""));
  EXPECT_THAT(other[2].info_json(), HasSubstr("\"fusion_threshold_bytes\":\"0\""));
}

}  // namespace
}  // namespace kolo::internal
