// S21, S64, S65: many kinds of operations, in different orders, under names that come again.
#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <utility>

#include "tests/multiproc/cases/job.h"
#include "tests/multiproc/cases/names.h"

namespace kolo::cases {
namespace {

constexpr std::size_t kBlock = 50;

// One operation of step `step`: its kind goes by the step, its name by its place among those in
// flight. Keeps its buffers.
struct Step {
  std::vector<std::int64_t> input = std::vector<std::int64_t>(3 * kBlock);
  std::vector<std::int64_t> output = std::vector<std::int64_t>(3 * kBlock);
  kolo_request request = KOLO_REQUEST_NULL;

  void submit(const Job& job, int step, const std::string& name);
  void check(const Job& job, int step) const;
};

std::int64_t element(int rank, int step, std::size_t i) {
  return 1'000'000 * rank + 1000 * (step % 1000) + static_cast<std::int64_t>(i);
}

void Step::submit(const Job& job, int step, const std::string& name) {
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = element(job.rank(), step, i);
  const kolo_options options = named(name.c_str());
  kolo_context* context = job.context();
  kolo_status status = KOLO_INTERNAL;
  switch (step % 4) {
    case 0:
      status = kolo_alltoall(context, input.data(), output.data(), kBlock, KOLO_INT64, &options,
                             &request);
      break;
    case 1:
      status = kolo_allreduce(context, input.data(), output.data(), kBlock, KOLO_INT64, KOLO_SUM,
                              &options, &request);
      break;
    case 2:
      status = kolo_allgather(context, input.data(), output.data(), kBlock, KOLO_INT64, &options,
                              &request);
      break;
    default:
      status = kolo_broadcast(context, input.data(), output.data(), kBlock, KOLO_INT64,
                              step / 4 % 3, &options, &request);
  }
  expect_status(status, KOLO_OK, "a submission");
}

void Step::check(const Job& job, int step) const {
  for (std::size_t i = 0; i < kBlock; ++i) {
    std::int64_t sum = 0;
    for (int rank = 0; rank < 3; ++rank) {
      sum += element(rank, step, i);
      const std::size_t at = static_cast<std::size_t>(rank) * kBlock + i;
      const std::size_t mine = static_cast<std::size_t>(job.rank()) * kBlock + i;
      if (step % 4 == 0) KOLO_EXPECT(output[at] == element(rank, step, mine));
      if (step % 4 == 2) KOLO_EXPECT(output[at] == element(rank, step, i));
    }
    if (step % 4 == 1) KOLO_EXPECT(output[i] == sum);
    if (step % 4 == 3) KOLO_EXPECT(output[i] == element(step / 4 % 3, step, i));
  }
}

int s21() {
  const Job job;
  job.expect_size(3);
  constexpr int kInFlight = 8;
  const int steps = repetitions(10'000) / kInFlight * kInFlight;
  std::array<Step, kInFlight> flight;
  for (int first = 0; first < steps; first += kInFlight) {
    for (int i = 0; i < kInFlight; ++i) {
      const int place = (i * (2 * job.rank() + 1) + first / kInFlight * job.rank()) % kInFlight;
      flight[static_cast<std::size_t>(place)].submit(job, first + place,
                                                     "s" + std::to_string(place));
    }
    for (int place = 0; place < kInFlight; ++place) {
      Step& step = flight[static_cast<std::size_t>(place)];
      job.finish(step.request, KOLO_OK);
      step.check(job, first + place);
    }
  }
  job.shutdown();
  return 0;
}

// A step of 'g' and three others, which rank 1 submits in the reverse order.
void step_of_g(const Job& job, std::size_t length, int step) {
  const std::vector<std::string> names = {"g", "h0", "h1", "h2"};
  std::vector<std::vector<std::int32_t>> values;
  for (std::size_t i = 0; i < names.size(); ++i) {
    values.emplace_back(i == 0 ? length : 30 * i, step + job.rank());
  }
  std::vector<kolo_request> requests(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t at = job.rank() == 0 ? i : names.size() - 1 - i;
    requests[at] = job.submit(names[at].c_str(), values[at]);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    job.finish(requests[i], KOLO_OK);
    for (const std::int32_t value : values[i]) KOLO_EXPECT(value == 2 * step + 1);
  }
}

int s64() {
  const Job job;
  job.expect_size(2);
  int step = 0;
  for (const std::size_t length : {10U, 12U, 10U}) {
    for (int i = 0; i < 20; ++i) step_of_g(job, length, step++);
  }
  for (int i = 0; i < 3; ++i) {  // then only rank 1 changes, and comes back
    std::vector<std::int32_t> values(job.rank() == 0 ? 10 : 12, 7);
    const std::vector<std::int32_t> before = values;
    job.finish_soon(job.submit("g", values), KOLO_MISMATCH);
    expect_text({"'g'", "(10) on rank 0", "(12) on rank 1"});
    KOLO_EXPECT(values == before);
    step_of_g(job, 10, step++);
  }
  job.shutdown();
  return 0;
}

int s65() {
  const Job job;
  job.expect_size(2);
  std::vector<std::thread> threads;
  for (const std::string& name : strange_names()) {
    threads.emplace_back([&job, name] {
      for (std::int64_t step = 0; step < 20; ++step) {
        KOLO_EXPECT(job.reduce(name.c_str(), std::vector<std::int64_t>{step})[0] == 2 * step);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  job.shutdown();
  return 0;
}

// ---- Beyond the list ------------------------------------------------------------------------

void scatter(const Job& job, kolo_status want) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(job.size()) * 4, job.rank() + 1);
  const std::vector<std::int32_t> before = values;
  std::vector<std::int32_t> output(4, -1);
  const kolo_options options = named("kind");
  expect_status(kolo_reduce_scatter(job.context(), values.data(), output.data(), 4, KOLO_INT32,
                                    KOLO_SUM, &options, nullptr),
                want, "a reduce-scatter");
  KOLO_EXPECT(values == before);
  const std::int32_t sum = job.size() * (job.size() + 1) / 2;
  for (const std::int32_t value : output) KOLO_EXPECT(value == (want == KOLO_OK ? sum : -1));
}

void reduce(const Job& job, kolo_status want) {
  std::vector<std::int32_t> values(4, job.rank() + 1);
  job.finish_soon(job.submit("kind", values), want);
  const std::int32_t sum = job.size() * (job.size() + 1) / 2;
  for (const std::int32_t value : values) {
    KOLO_EXPECT(value == (want == KOLO_OK ? sum : job.rank() + 1));
  }
}

// A name that is known as one kind comes back as another: on all ranks, then on one only.
int kinds_of_a_name() {
  const Job job;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 3; ++i) reduce(job, KOLO_OK);
    for (int i = 0; i < 3; ++i) scatter(job, KOLO_OK);
    for (int i = 0; i < 2; ++i) reduce(job, KOLO_OK);
    if (job.rank() == round % job.size()) {
      scatter(job, KOLO_MISMATCH);
    } else {
      reduce(job, KOLO_MISMATCH);
    }
    expect_text({"'kind'", "allreduce", "reduce_scatter"});
    job.probe();
  }
  job.shutdown();
  return 0;
}

// A name twice in one group: nothing of the group is done, on any rank, and all names are free.
int twice_in_a_group() {
  const Job job;
  for (int round = 0; round < 5; ++round) {
    const bool wrong = job.rank() == round % job.size();
    std::vector<float> a(3, 1.0F);
    std::vector<float> b(5, 2.0F);
    expect_status(kolo_group_begin(job.context(), "G"), KOLO_OK, "kolo_group_begin");
    std::vector<kolo_request> members = {job.submit("a", a), job.submit("b", b)};
    if (wrong) {
      kolo_request again = 1;
      const kolo_options options = named("a");
      expect_status(kolo_allreduce(job.context(), a.data(), a.data(), 3, KOLO_FLOAT32, KOLO_SUM,
                                   &options, &again),
                    KOLO_DUPLICATE_NAME, "a member's name again");
      KOLO_EXPECT(again == KOLO_REQUEST_NULL);
    }
    const Stopwatch watch;
    kolo_request group = KOLO_REQUEST_NULL;
    const kolo_status status = kolo_group_end(job.context(), &group);
    expect_status(status, wrong ? KOLO_DUPLICATE_NAME : KOLO_OK, "kolo_group_end");
    if (!wrong) job.finish(group, KOLO_MISMATCH);
    for (const kolo_request member : members) {
      job.finish(member, wrong ? KOLO_DUPLICATE_NAME : KOLO_MISMATCH);
    }
    watch.expect_between(0, 1, "the group's failure");
    KOLO_EXPECT(a == std::vector<float>(3, 1.0F) && b == std::vector<float>(5, 2.0F));
    // Nothing is left of it.
    const auto ranks = static_cast<float>(job.size());
    KOLO_EXPECT(job.reduce("a", a)[2] == ranks && job.reduce("b", b)[4] == 2 * ranks);
    expect_status(kolo_group_begin(job.context(), "G"), KOLO_OK, "kolo_group_begin");
    members = {job.submit("a", a), job.submit("b", b)};
    expect_status(kolo_group_end(job.context(), nullptr), KOLO_OK, "kolo_group_end");
    for (const kolo_request member : members) job.finish(member, KOLO_OK);
    KOLO_EXPECT(a[0] == ranks && b[0] == 2 * ranks);
  }
  job.probe();
  job.shutdown();
  return 0;
}

// An init that failed leaves nothing that a later one could see.
int init_again() {
  for (int i = 0; i < 3; ++i) {
    kolo_config* config = nullptr;
    expect_status(kolo_config_create(&config), KOLO_OK, "kolo_config_create");
    // Nobody listens there.
    for (const auto& [key, value] : {std::pair{"rendezvous", "127.0.0.1:1"},
                                     {"launcher", "none"},
                                     {"rank", "1"},
                                     {"size", "2"},
                                     {"transport", "tcp"},
                                     {"job", "another"},
                                     {"start_timeout_ms", "300"}}) {
      expect_status(kolo_config_set(config, key, value), KOLO_OK, key);
    }
    kolo_context* context = nullptr;
    const kolo_status status = kolo_init(config, &context);
    KOLO_EXPECT(status == KOLO_TIMED_OUT || status == KOLO_PEER_LOST);
    KOLO_EXPECT(context == nullptr);
    expect_status(kolo_config_destroy(config), KOLO_OK, "kolo_config_destroy");
  }
  const Job job;
  job.probe();
  job.shutdown();
  return 0;
}

}  // namespace

std::vector<Situation> mixed_situations() {
  return {{"S21", s21},
          {"S64", s64},
          {"S65", s65},
          {"kinds-of-a-name", kinds_of_a_name},
          {"twice-in-a-group", twice_in_a_group},
          {"init-again", init_again}};
}

}  // namespace kolo::cases
