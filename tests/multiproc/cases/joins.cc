// S24, S25, and the rules of join.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

void align(const Job& job) {
  expect_status(kolo_barrier(job.context(), nullptr, nullptr), KOLO_OK, "kolo_barrier");
}

// Each rank after its delay; the one with the longest is last.
void join_in_turn(const Job& job, const std::vector<int>& delays_ms) {
  align(job);
  sleep_ms(delays_ms[static_cast<std::size_t>(job.rank())]);
  const auto last = std::max_element(delays_ms.begin(), delays_ms.end()) - delays_ms.begin();
  KOLO_EXPECT(job.join() == last);
}

int s24() {
  const Job job;
  job.expect_size(3);
  for (const bool warm : {false, true}) {
    std::vector<int> delays_ms = {0, 100, 200};
    do {
      for (int step = 0; warm && step < 5; ++step) {
        KOLO_EXPECT(job.reduce("warm", std::vector<std::int64_t>(20, job.rank()))[7] == 3);
      }
      join_in_turn(job, delays_ms);
    } while (std::next_permutation(delays_ms.begin(), delays_ms.end()));
  }
  job.probe();
  job.shutdown();
  return 0;
}

// Rows of two columns from whoever has any: two of each rank that has not joined.
void gather_rows(const Job& job, const std::vector<std::size_t>& want) {
  const std::int64_t shape[] = {2, 2};
  const std::int32_t rows[] = {job.rank(), 1, job.rank(), 2};
  kolo_options options = named("rows");
  options.shape = shape;
  options.ndim = 2;
  options.allocate = 1;
  kolo_request request = KOLO_REQUEST_NULL;
  expect_status(kolo_allgather(job.context(), rows, nullptr, 4, KOLO_INT32, &options, &request),
                KOLO_OK, "kolo_allgather");
  expect_status(kolo_wait(job.context(), &request, 30'000), KOLO_OK, "kolo_wait");
  void* output = nullptr;
  std::size_t count = 0;
  const std::size_t* counts = nullptr;
  expect_status(kolo_request_output(job.context(), request, &output, &count, &counts), KOLO_OK,
                "kolo_request_output");
  KOLO_EXPECT(std::vector<std::size_t>(counts, counts + want.size()) == want);
  const auto* values = static_cast<const std::int32_t*>(output);
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < want.size(); ++rank) {
    for (std::size_t i = 0; i < want[rank]; i += 2, at += 2) {
      KOLO_EXPECT(values[at] == static_cast<std::int32_t>(rank));
    }
  }
  KOLO_EXPECT(count == at);
  expect_status(kolo_request_free(job.context(), &request), KOLO_OK, "kolo_request_free");
}

void broadcast_from(const Job& job, int root, kolo_status want) {
  std::int64_t value = 100 + job.rank();
  const kolo_options options = named("from the root");
  expect_status(
      kolo_broadcast(job.context(), &value, &value, 1, KOLO_INT64, root, &options, nullptr), want,
      "a broadcast");
  if (want != KOLO_OK) {
    expect_text({"'from the root'", "rank " + std::to_string(root)});
    KOLO_EXPECT(value == 100 + job.rank());
  } else {
    KOLO_EXPECT(value == 100 + root);
  }
}

int s25() {
  const Job job;
  job.expect_size(3);
  if (job.rank() != 2) {
    for (int step = 0; step < 10; ++step) {
      KOLO_EXPECT(job.reduce("sum", std::vector<std::int64_t>{5})[0] == 10);
      gather_rows(job, {4, 4, 0});
      broadcast_from(job, 2, KOLO_INVALID_ARGUMENT);
    }
  }
  const std::int32_t last = job.join();
  KOLO_EXPECT(last == 0 || last == 1);
  job.probe();
  broadcast_from(job, 2, KOLO_OK);
  gather_rows(job, {4, 4, 4});
  job.probe();  // nobody leaves early
  job.shutdown();
  return 0;
}

// ---- Beyond the list ------------------------------------------------------------------------

// All ranks' values are this function of the step, so that each knows what must come out.
std::int64_t value_of(int rank, int step, std::size_t i) {
  return (rank + 2) * (rank % 2 == 0 ? 1 : -1) * (step + 1) + static_cast<std::int64_t>(i % 7);
}

struct Expected {
  std::int64_t sum = 0;
  std::int64_t product = 1;
  std::int64_t least = INT64_MAX;
  std::int64_t most = INT64_MIN;
  int ranks = 0;
};

Expected expected_of(const std::vector<int>& steps_of, int step, std::size_t i) {
  Expected expected;
  for (int rank = 0; rank < static_cast<int>(steps_of.size()); ++rank) {
    if (steps_of[static_cast<std::size_t>(rank)] <= step) continue;
    const std::int64_t value = value_of(rank, step, i);
    expected.sum += value;
    expected.product *= value;
    expected.least = std::min(expected.least, value);
    expected.most = std::max(expected.most, value);
    ++expected.ranks;
  }
  return expected;
}

std::int64_t pick(const Expected& expected, kolo_op op) {
  switch (op) {
    case KOLO_PROD: return expected.product;
    case KOLO_MIN: return expected.least;
    case KOLO_MAX: return expected.most;
    case KOLO_AVG: return expected.sum / expected.ranks;
    default: return expected.sum;
  }
}

// Every operator over the slot, the fused and the lone path at once.
void step_of_all_operators(const Job& job, const std::vector<int>& steps_of, int step) {
  constexpr kolo_op kOps[] = {KOLO_SUM, KOLO_PROD, KOLO_MIN, KOLO_MAX, KOLO_AVG};
  constexpr std::size_t kCounts[] = {1, 5, 6, 300, 50'000};
  std::vector<std::vector<std::int64_t>> values;
  std::vector<kolo_request> requests;
  std::vector<kolo_result> results(std::size(kOps) * std::size(kCounts));
  for (std::size_t t = 0; t < results.size(); ++t) {
    auto& tensor = values.emplace_back(kCounts[t % std::size(kCounts)]);
    for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = value_of(job.rank(), step, i);
  }
  for (std::size_t t = 0; t < values.size(); ++t) {
    const std::string name = "tensor " + std::to_string(t);
    kolo_options options = named(name.c_str());
    options.result = &results[t];
    requests.push_back(job.submit_raw(options, values[t].data(), values[t].size(), KOLO_INT64,
                                      kOps[t / std::size(kCounts)]));
  }
  for (std::size_t t = 0; t < values.size(); ++t) {
    job.finish(requests[t], KOLO_OK);
    for (std::size_t i = 0; i < values[t].size(); ++i) {
      const Expected expected = expected_of(steps_of, step, i);
      if (values[t][i] != pick(expected, kOps[t / std::size(kCounts)])) {
        fail("tensor " + std::to_string(t) + " at step " + std::to_string(step) + ", element " +
             std::to_string(i) + ": " + std::to_string(values[t][i]));
      }
    }
    KOLO_EXPECT(results[t].participants == expected_of(steps_of, step, 0).ranks);
  }
}

// Epochs in which another rank has the most, the middle and the least data: a low rank joins while
// a higher has not, and the reverse; then two at once.
int join_uneven() {
  const Job job;
  job.expect_size(3);
  std::vector<int> steps_of = {1, 4, 7};
  do {
    const int mine = steps_of[static_cast<std::size_t>(job.rank())];
    for (int step = 0; step < mine; ++step) step_of_all_operators(job, steps_of, step);
    const auto most = std::max_element(steps_of.begin(), steps_of.end()) - steps_of.begin();
    KOLO_EXPECT(job.join() == most);
  } while (std::next_permutation(steps_of.begin(), steps_of.end()));
  steps_of = {0, 3, 0};
  for (int step = 0; job.rank() == 1 && step < 3; ++step) {
    step_of_all_operators(job, steps_of, step);
  }
  KOLO_EXPECT(job.join() == 1);
  job.probe();
  job.shutdown();
  return 0;
}

// An average of floats divides by those who took part; -0, infinities and NaN pass unharmed.
int join_floats() {
  const Job job;
  job.expect_size(3);
  for (int round = 0; round < 4; ++round) {
    const int joined = round % 3;
    if (job.rank() != joined) {
      const int other = 3 - joined - job.rank();
      std::vector<float> values = {static_cast<float>(job.rank()), -0.0F, 1e38F, 0.5F};
      const float want = static_cast<float>(job.rank() + other) / 2;
      for (int step = 0; step < 3; ++step) {
        const std::vector<float> average = job.reduce("avg", values, KOLO_AVG);
        KOLO_EXPECT(average[0] == want && average[2] == 1e38F && average[3] == 0.5F);
        const std::vector<float> sum = job.reduce("sum", values);
        KOLO_EXPECT(sum[1] == 0.0F && std::signbit(sum[1]));
        const std::vector<float> least = job.reduce("min", values, KOLO_MIN);
        KOLO_EXPECT(least[2] == 1e38F && least[3] == 0.5F && std::signbit(least[1]));
        KOLO_EXPECT(job.reduce("prod", values, KOLO_PROD)[3] == 0.25F);
      }
    }
    KOLO_EXPECT(job.join() != joined);
  }
  job.probe();  // nobody leaves early
  job.shutdown();
  return 0;
}

void expect_refused(kolo_status status, const char* what) {
  expect_status(status, KOLO_INVALID_ARGUMENT, what);
}

// What needs something of every rank is refused on those who call it; a reduce-scatter goes on.
void call_all_kinds(const Job& job) {
  kolo_context* context = job.context();
  std::vector<float> values(12, 1.0F);
  std::vector<float> output(12, -1.0F);
  kolo_options options = named("gather");
  expect_refused(
      kolo_allgather(context, values.data(), output.data(), 4, KOLO_FLOAT32, &options, nullptr),
      "an all-gather");
  options.name = "exchange";
  expect_refused(
      kolo_alltoall(context, values.data(), output.data(), 4, KOLO_FLOAT32, &options, nullptr),
      "an all-to-all");
  options.name = "product";
  options.prescale = 2;
  expect_refused(kolo_allreduce(context, values.data(), output.data(), 4, KOLO_FLOAT32, KOLO_PROD,
                                &options, nullptr),
                 "a product with a prescale");
  KOLO_EXPECT(output == std::vector<float>(12, -1.0F));
  options.prescale = 1;
  options.name = "scatter";
  expect_status(kolo_reduce_scatter(context, values.data(), output.data(), 4, KOLO_FLOAT32,
                                    KOLO_SUM, &options, nullptr),
                KOLO_OK, "a reduce-scatter");
  KOLO_EXPECT(output[0] == 2.0F && output[3] == 2.0F && output[4] == -1.0F);
  options.name = "barrier";
  expect_status(kolo_barrier(context, &options, nullptr), KOLO_OK, "a barrier");
}

int join_kinds() {
  const Job job;
  job.expect_size(3);
  for (int joined = 0; joined < 3; ++joined) {
    if (job.rank() != joined) {
      for (int step = 0; step < 3; ++step) {
        call_all_kinds(job);
        broadcast_from(job, (joined + 1) % 3, KOLO_OK);
        broadcast_from(job, joined, KOLO_INVALID_ARGUMENT);
        expect_status(kolo_group_begin(job.context(), "group"), KOLO_OK, "kolo_group_begin");
        std::vector<std::int32_t> a(3, 1);
        std::vector<std::int32_t> b(500, 2);
        const kolo_request members[] = {job.submit("a", a), job.submit("b", b)};
        expect_status(kolo_group_end(job.context(), nullptr), KOLO_OK, "kolo_group_end");
        for (const kolo_request member : members) job.finish(member, KOLO_OK);
        KOLO_EXPECT(a[2] == 2 && b[499] == 4);
      }
    }
    job.join();
    job.probe();
  }
  job.probe();  // nobody leaves early
  job.shutdown();
  return 0;
}

// What a rank may not do with a join, and between its join and its end.
int join_rules() {
  const Job job;
  job.expect_size(2);
  kolo_context* context = job.context();
  std::int32_t last = -1;
  kolo_options bad = named("a name");
  expect_refused(kolo_join(context, &last, &bad, nullptr), "a join with a name");
  bad = named(nullptr);
  bad.prescale = 2;
  expect_refused(kolo_join(context, &last, &bad, nullptr), "a join with a prescale");
  expect_status(kolo_group_begin(context, "open"), KOLO_OK, "kolo_group_begin");
  expect_refused(kolo_join(context, &last, nullptr, nullptr), "a join in a group");
  kolo_group_end(context, nullptr);
  KOLO_EXPECT(last == -1);
  align(job);
  if (job.rank() == 0) {
    kolo_request request = KOLO_REQUEST_NULL;
    expect_status(kolo_join(context, &last, nullptr, &request), KOLO_OK, "kolo_join");
    kolo_request second = 1;
    expect_status(kolo_join(context, nullptr, nullptr, &second), KOLO_DUPLICATE_NAME,
                  "a second join");
    KOLO_EXPECT(second == KOLO_REQUEST_NULL);
    float value = 1.0F;
    const kolo_options options = named("late");
    expect_refused(
        kolo_allreduce(context, &value, &value, 1, KOLO_FLOAT32, KOLO_SUM, &options, nullptr),
        "a call after the join");
    expect_text({"join"});
    std::int32_t done = 0;
    expect_status(kolo_test(context, &request, &done), KOLO_OK, "kolo_test");
    KOLO_EXPECT(done == 0);
    job.finish(request, KOLO_OK);
  } else {
    sleep_ms(300);
    expect_status(kolo_join(context, &last, nullptr, nullptr), KOLO_OK, "kolo_join");
  }
  KOLO_EXPECT(last == 1);
  job.probe();
  job.join();
  expect_status(kolo_join(context, nullptr, nullptr, nullptr), KOLO_OK, "a join without last_rank");
  job.probe();
  job.shutdown();
  return 0;
}

// A set's join leaves the world alone, and the reverse.
int join_sets() {
  const Job job;
  job.expect_size(3);
  const std::int32_t pair = job.make_set({0, 2});
  const kolo_options on_pair = named("pair", pair);
  for (int round = 0; round < 5; ++round) {
    kolo_request joining = KOLO_REQUEST_NULL;
    std::int32_t last = -1;
    if (job.rank() == 0) {
      const kolo_options options = named(nullptr, pair);
      expect_status(kolo_join(job.context(), &last, &options, &joining), KOLO_OK, "kolo_join");
    }
    for (int step = 0; step < 5; ++step) {
      job.probe();  // the world goes on, with rank 0
      if (job.rank() == 2) {
        std::int64_t value = 9;
        job.finish(job.submit_raw(on_pair, &value, 1, KOLO_INT64), KOLO_OK);
        KOLO_EXPECT(value == 9);
      }
    }
    if (job.rank() == 2) KOLO_EXPECT(job.join(pair) == 2);
    if (job.rank() == 0) {
      job.finish(joining, KOLO_OK);
      KOLO_EXPECT(last == 2);
    }
    if (job.rank() != 1) {
      std::int64_t value = job.rank();
      job.finish(job.submit_raw(on_pair, &value, 1, KOLO_INT64), KOLO_OK);
      KOLO_EXPECT(value == 2);
    }
  }
  job.probe();  // nobody leaves early
  job.shutdown();
  return 0;
}

struct Told {
  std::int32_t last = -1;
  std::int32_t seen = -1;
  std::atomic<int> calls{0};
};

void on_joined(kolo_status status, const char* text, void* user) {
  auto& told = *static_cast<Told*>(user);
  if (status != KOLO_OK) fail(std::string("the join's callback: ") + text);
  told.seen = told.last;
  ++told.calls;
}

int join_callback() {
  const Job job;
  for (int round = 0; round < 20; ++round) {
    Told told;
    kolo_options options = named(nullptr);
    options.callback = on_joined;
    options.user = &told;
    kolo_request request = KOLO_REQUEST_NULL;
    expect_status(kolo_join(job.context(), &told.last, &options, &request), KOLO_OK, "kolo_join");
    job.finish(request, KOLO_OK);
    job.probe();
    const Stopwatch watch;
    while (told.calls.load() == 0) KOLO_EXPECT(watch.seconds() < 10);
    KOLO_EXPECT(told.calls.load() == 1 && told.seen == told.last);
  }
  job.probe();  // nobody leaves early
  job.shutdown();
  return 0;
}

}  // namespace

std::vector<Situation> join_situations() {
  return {{"S24", s24},
          {"S25", s25},
          {"join-uneven", join_uneven},
          {"join-floats", join_floats},
          {"join-kinds", join_kinds},
          {"join-rules", join_rules},
          {"join-sets", join_sets},
          {"join-callback", join_callback}};
}

}  // namespace kolo::cases
