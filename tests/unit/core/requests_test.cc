// Submitting and completing: wait, test, wait_all, start, release, names, groups, callbacks.
#include <gmock/gmock.h>

#include <atomic>

#include "tests/unit/core/ranks.h"

namespace kolo::internal {
namespace {

using ::testing::HasSubstr;

TEST(Requests, WaitReleasesWhatIsComplete) {
  Ranks ranks(3);
  ranks.on_all([](Context& context) {
    std::vector<std::int32_t> values = {context.rank() + 1, 5};
    const RequestId request = submit(context, sum_of("x", values));
    EXPECT_TRUE(finish(context, request).is_ok());
    EXPECT_EQ(values, (std::vector<std::int32_t>{6, 15}));
    bool done = true;
    const Status again = context.wait(request, 0ns, done);
    expect_code(again, StatusCode::kInvalidArgument);
    EXPECT_THAT(again.text(), HasSubstr("released already"));
  });
}

TEST(Requests, AWaitsLimitLeavesTheRequestAlive) {
  Ranks ranks(2);
  std::vector<std::int32_t> early = {1};
  std::vector<std::int32_t> late = {2};
  const RequestId request = submit(ranks[0], sum_of("x", early));
  bool done = true;
  expect_code(ranks[0].wait(request, 50ms, done), StatusCode::kInProgress);
  EXPECT_FALSE(done);
  expect_code(ranks[0].wait(request, 0ns, done), StatusCode::kInProgress);
  EXPECT_TRUE(ranks[0].test(request, done).is_ok() || !done);
  EXPECT_FALSE(done);
  const RequestId other = submit(ranks[1], sum_of("x", late));
  EXPECT_TRUE(finish(ranks[0], request).is_ok());
  EXPECT_TRUE(finish(ranks[1], other).is_ok());
  EXPECT_EQ(early[0], 3);
  EXPECT_EQ(late[0], 3);
}

TEST(Requests, TestAloneMakesProgress) {
  Ranks ranks(2);
  ranks.on_all([](Context& context) {
    std::vector<std::int32_t> values = {4};
    const RequestId request = submit(context, sum_of("x", values));
    const auto end = std::chrono::steady_clock::now() + 20s;
    bool done = false;
    while (!done && std::chrono::steady_clock::now() < end) {
      const Status status = context.test(request, done);
      EXPECT_TRUE(!done || status.is_ok()) << status.to_string();
    }
    EXPECT_TRUE(done);
    EXPECT_EQ(values[0], 8);
  });
}

TEST(Requests, WaitAllTellsWhichAreDoneAndTheFirstErrorInOrder) {
  Ranks ranks(2);
  ranks.on_all([](Context& context) {
    std::vector<std::int32_t> good = {1};
    std::vector<std::int32_t> bad(static_cast<std::size_t>(context.rank() + 1), 1);
    std::vector<std::int32_t> worse(static_cast<std::size_t>(context.rank() + 3), 1);
    const RequestId requests[] = {submit(context, sum_of("good", good)), 0,
                                  submit(context, sum_of("bad", bad)),
                                  submit(context, sum_of("worse", worse))};
    bool done[] = {false, false, false, false};
    const Status status = context.wait_all(requests, 20s, done);
    expect_code(status, StatusCode::kMismatch);
    EXPECT_THAT(status.text(), HasSubstr("'bad'"));
    for (const bool flag : done) EXPECT_TRUE(flag);
    EXPECT_EQ(good[0], 2);
    EXPECT_EQ(bad[0], 1);
  });
  std::vector<std::int32_t> alone = {1};
  std::vector<std::int32_t> both = {1};
  std::vector<std::int32_t> both_too = {1};
  const RequestId requests[] = {submit(ranks[0], sum_of("alone", alone)),
                                submit(ranks[0], sum_of("both", both))};
  submit(ranks[1], sum_of("both", both_too));
  bool done[] = {true, false};
  Status status;
  for (int i = 0; i < 100 && !done[1]; ++i) status = ranks[0].wait_all(requests, 50ms, done);
  expect_code(status, StatusCode::kInProgress);
  EXPECT_FALSE(done[0]);
  EXPECT_TRUE(done[1]);
  std::vector<std::int32_t> alone_too = {1};
  submit(ranks[1], sum_of("alone", alone_too));
  EXPECT_TRUE(finish(ranks[0], requests[0]).is_ok());
  ranks.on_all(probe);
}

TEST(Requests, ADuplicateNameIsAnsweredAtOnce) {
  Ranks ranks(2);
  std::vector<std::int32_t> first = {1};
  std::vector<std::int32_t> second = {7};
  std::vector<std::int32_t> other = {2};
  const RequestId request = submit(ranks[0], sum_of("g", first));
  const auto again = ranks[0].submit(sum_of("g", second));
  ASSERT_FALSE(again.is_ok());
  expect_code(again.status(), StatusCode::kDuplicateName);
  EXPECT_THAT(again.status().text(), HasSubstr("g"));
  const RequestId its = submit(ranks[1], sum_of("g", other));
  EXPECT_TRUE(finish(ranks[0], request).is_ok());
  EXPECT_TRUE(finish(ranks[1], its).is_ok());
  EXPECT_EQ(first[0], 3);
  EXPECT_EQ(second[0], 7);
  ranks.on_all([](Context& context) {
    for (int i = 0; i < 200; ++i) {
      std::vector<std::int32_t> values = {i};
      EXPECT_TRUE(context.run(sum_of("g", values)).is_ok());
      EXPECT_EQ(values[0], 2 * i);
    }
  });
}

TEST(Requests, PersistentOnesAreStartedManyAtOnceAndAllOrNone) {
  Ranks ranks(2);
  ranks.on_all([](Context& context) {
    std::vector<std::int32_t> a = {0};
    std::vector<std::int32_t> b = {0, 0};
    std::vector<RequestId> requests;
    for (auto* values : {&a, &b}) {
      const auto made = context.prepare(sum_of(values == &a ? "a" : "b", *values));
      ASSERT_TRUE(made.is_ok()) << made.status().to_string();
      requests.push_back(*made);
    }
    EXPECT_TRUE(finish(context, requests[0]).is_ok());  // not started: complete
    for (std::int32_t step = 1; step <= 100; ++step) {
      a = {step};
      b = {step, -step};
      if (context.rank() == 1) std::swap(requests[0], requests[1]);
      ASSERT_TRUE(context.start(requests).is_ok());
      bool done[] = {false, false};
      EXPECT_TRUE(context.wait_all(requests, 20s, done).is_ok());
      EXPECT_EQ(a[0], 2 * step);
      EXPECT_EQ(b, (std::vector<std::int32_t>{2 * step, -2 * step}));
    }
    const RequestId twice[] = {requests[0], requests[0]};
    expect_code(context.start(twice), StatusCode::kDuplicateName);
    EXPECT_TRUE(finish(context, requests[0]).is_ok());  // none was started
    for (const RequestId request : requests) EXPECT_TRUE(context.release(request).is_ok());
    expect_code(context.start(requests), StatusCode::kInvalidArgument);
    probe(context);
  });
}

TEST(Requests, AReleasedOneGoesOnUnobserved) {
  Ranks ranks(2);
  std::atomic<int> told{0};
  std::vector<std::int32_t> first = {1};
  std::vector<std::int32_t> second = {2};
  Submission submission = sum_of("x", first);
  submission.callback = [&](const Status& status) { told = status.is_ok() ? 1 : -1; };
  const RequestId request = submit(ranks[0], std::move(submission));
  EXPECT_TRUE(ranks[0].release(request).is_ok());
  expect_code(ranks[0].release(request), StatusCode::kInvalidArgument);
  EXPECT_TRUE(ranks[1].run(sum_of("x", second)).is_ok());
  for (int i = 0; i < 2000 && told == 0; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(first[0], 3);
}

TEST(Requests, NullInputIsFineForABroadcastExceptOnItsRoot) {
  Ranks ranks(2);
  ranks.on_all([](Context& context) {
    std::vector<std::int32_t> values = {context.rank() == 1 ? 42 : 0};
    Submission submission = sum_of("b", values);
    submission.kind = OpKind::kBroadcast;
    submission.root = 1;
    if (context.rank() == 0) submission.input = nullptr;
    const Status status = context.run(submission);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(values[0], 42);
  });
}

// ---- Groups -----------------------------------------------------------------------------------

TEST(Groups, AreOneUnitPairedByName) {
  Ranks ranks(2);
  ranks.on_all([](Context& context) {
    std::vector<std::int32_t> a = {1};
    std::vector<std::int32_t> b = {2, 3};
    ASSERT_TRUE(context.group_begin("G").is_ok());
    expect_code(context.group_begin("H"), StatusCode::kInvalidArgument);
    const bool first = context.rank() == 0;
    const RequestId one = submit(context, first ? sum_of("a", a) : sum_of("b", b));
    const RequestId two = submit(context, first ? sum_of("b", b) : sum_of("a", a));
    bool done = true;
    expect_code(context.wait(one, kNever, done), StatusCode::kWouldDeadlock);
    const auto duplicate = context.submit(sum_of("a", a));
    expect_code(duplicate.status(), StatusCode::kDuplicateName);
    const auto spoilt = context.group_end();
    expect_code(spoilt.status(), StatusCode::kDuplicateName);
    expect_code(finish(context, one), StatusCode::kDuplicateName);
    expect_code(finish(context, two), StatusCode::kDuplicateName);
    EXPECT_EQ(a[0], 1);

    ASSERT_TRUE(context.group_begin("G").is_ok());
    const RequestId member = submit(context, first ? sum_of("a", a) : sum_of("b", b));
    EXPECT_TRUE(context.run(first ? sum_of("b", b) : sum_of("a", a)).is_ok());  // joins
    const auto group = context.group_end();
    ASSERT_TRUE(group.is_ok()) << group.status().to_string();
    EXPECT_TRUE(finish(context, *group).is_ok());
    EXPECT_TRUE(finish(context, member).is_ok());
    EXPECT_EQ(a[0], 2);
    EXPECT_EQ(b, (std::vector<std::int32_t>{4, 6}));
  });
}

TEST(Groups, EmptyOnesAreCompleteAndBelongToTheirThread) {
  Ranks ranks(2);
  ranks.on_all([](Context& context) {
    expect_code(context.group_end().status(), StatusCode::kInvalidArgument);
    ASSERT_TRUE(context.group_begin("").is_ok());
    std::thread([&] { probe(context); }).join();  // not in the group
    const auto group = context.group_end();
    ASSERT_TRUE(group.is_ok());
    EXPECT_TRUE(finish(context, *group).is_ok());
    probe(context);
  });
}

// ---- Callbacks --------------------------------------------------------------------------------

TEST(Callbacks, MaySubmitButNotWait) {
  Ranks ranks(2);
  ranks.on_all([](Context& context) {
    const RequestId never = submit(context, barrier("only rank " + std::to_string(context.rank())));
    std::vector<std::int32_t> values = {1};
    std::vector<std::int32_t> next = {5};
    std::atomic<RequestId> submitted{0};
    Submission submission = sum_of("x", values);
    submission.callback = [&](const Status& status) {
      EXPECT_TRUE(status.is_ok());
      bool done = true;
      expect_code(context.wait(never, kNever, done), StatusCode::kWouldDeadlock);
      EXPECT_FALSE(done);
      expect_code(context.run(barrier()), StatusCode::kWouldDeadlock);
      expect_code(context.shutdown(), StatusCode::kWouldDeadlock);
      EXPECT_TRUE(context.test(never, done).code() != StatusCode::kWouldDeadlock && !done);
      submitted = submit(context, sum_of("next", next));
    };
    const RequestId request = submit(context, std::move(submission));
    EXPECT_TRUE(finish(context, request).is_ok());
    for (int i = 0; i < 4000 && submitted == 0; ++i) std::this_thread::sleep_for(5ms);
    ASSERT_NE(submitted, 0u);
    EXPECT_TRUE(finish(context, submitted).is_ok());
    EXPECT_EQ(next[0], 10);
    // What was missing on the other rank:
    const RequestId late =
        submit(context, barrier("only rank " + std::to_string(1 - context.rank())));
    EXPECT_TRUE(finish(context, late).is_ok());
    EXPECT_TRUE(finish(context, never).is_ok());
  });
}

TEST(Callbacks, ComeOncePerRunWithTheStatus) {
  Ranks ranks(2);
  ranks.on_all([](Context& context) {
    std::atomic<int> good{0};
    std::atomic<int> bad{0};
    std::vector<std::int32_t> values = {1};
    Submission submission = sum_of("again", values);
    submission.callback = [&](const Status& status) { ++(status.is_ok() ? good : bad); };
    const auto request = context.prepare(submission);
    ASSERT_TRUE(request.is_ok());
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(context.start({&*request, 1}).is_ok());
      EXPECT_TRUE(finish(context, *request).is_ok());
    }
    std::vector<std::int32_t> differs(static_cast<std::size_t>(context.rank() + 1));
    Submission wrong = sum_of("differs", differs);
    wrong.callback = submission.callback;
    expect_code(finish(context, submit(context, wrong)), StatusCode::kMismatch);
    EXPECT_TRUE(context.run(barrier()).is_ok());
    EXPECT_TRUE(context.shutdown().is_ok());  // after it, no callback is outstanding
    EXPECT_EQ(good, 20);
    EXPECT_EQ(bad, 1);
  });
}

}  // namespace
}  // namespace kolo::internal
