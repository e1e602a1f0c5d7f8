// Every fault that the fakes can plan, and every way in which it can end: by itself, by
// kolo_abort() of another rank, a rank that is killed, one that is frozen, kolo_shutdown() here or
// there. Whoever waits, by a blocking call, kolo_wait() with a time limit or kolo_stream_wait(), is
// told.
#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/fakes_job.h"

namespace gpu_test {
namespace {

constexpr int kJobsAtOnce = 4;  // most of their time they wait
constexpr long kSoon = 15'000;

// Jobs are processes; some of them run at a time.
void at_once(std::size_t count, const std::function<void(std::size_t)>& run) {
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kJobsAtOnce; ++i) {
    threads.emplace_back([&] {
      for (std::size_t job = next++; job < count; job = next++) run(job);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- What fails by itself -----------------------------------------------------------------------

struct Failing {
  const char* plan;       // of rank 1
  const char* told;       // to rank 1, a part of the text
  const char* cuda = "";  // the option
};

// Calls count from when the program has its memory and its streams. The first operation makes the
// communicator.
const Failing kFailing[] = {
    {"cudaPointerGetAttributes:1:error", "'first'.*cudaPointerGetAttributes"},
    {"cudaStreamIsCapturing:1:error", "'first'.*cudaStreamIsCapturing"},
    {"cudaEventCreateWithFlags:1:error", "'first'.*cudaEventCreateWithFlags"},
    {"cudaEventCreateWithFlags:1:oom", "'first'.*cudaEventCreateWithFlags"},
    {"cudaEventRecord:1:error", "'first'.*cudaEventRecord"},
    {"cudaEventRecord:2:error", "'first'.*cudaEventRecord"},
    {"cudaStreamWaitEvent:1:error", "'first'.*cudaStreamWaitEvent"},
    {"cudaStreamWaitEvent:3:sticky", "'(block|wait|stream)'.*(CUDA|cuda)"},
    {"cudaEventSynchronize:1:error", "'first'.*device 0"},
    {"cudaEventRecord:9:sticky", "'(block|wait|stream)'.*(CUDA|cuda)"},
#ifdef GPU_FAKES_KERNELS  // by which fused tensors are packed
    {"launch:1:sticky", "'(block|wait|stream)'.*(CUDA|cuda)"},
    {"cudaLaunchKernel:2:error", "'(block|wait|stream)'.*kolo_(un)?pack"},
#endif
    {"cudaDeviceGetPCIBusId:1:error", "'first'.*cudaDeviceGetPCIBusId"},
    {"cudaDeviceGetStreamPriorityRange:1:error", "'first'.*cudaDeviceGetStreamPriorityRange"},
    {"cudaStreamCreateWithPriority:1:error", "'first'.*cudaStreamCreateWithPriority"},
    {"cudaStreamCreateWithPriority:1:oom", "'first'.*cudaStreamCreateWithPriority"},
    {"ncclCommInitRankConfig:1:error", "'first'.*ncclCommInitRankConfig.*KOLO_CUDA=staged"},
    {"ncclCommInitRankConfig:1:oom", "'first'.*ncclCommInitRankConfig"},
    {"ncclCommInitRankConfig:1:async-error", "'first'.*ncclCommInitRankConfig"},
    {"ncclCommGetAsyncError:2:error", "NCCL_DEBUG=INFO"},
    {"ncclGroupStart:1:error", "'first'.*ncclGroupStart"},
    {"ncclGroupEnd:1:error", "'first'.*ncclAllReduce"},
    {"ncclGroupEnd:3:error", "'(block|wait|stream)'.*ncclAllReduce"},
    {"ncclAllReduce:1:error", "'first'.*ncclAllReduce"},
    {"ncclAllReduce:3:oom", "'(block|wait|stream)'.*ncclAllReduce"},
    {"collective:1:async-error", "'first'.*NCCL"},
    {"collective:5:async-error:3", "'(block|wait|stream)'.*NCCL"},
    {"cudaHostAlloc:1:oom", "'first'.*pinned memory.*ulimit -l", "staged"},
    {"cudaHostAlloc:2:oom", "pinned memory.*ulimit -l", "staged"},
    {"cudaMemcpyAsync:1:error", "'first'.*cudaMemcpyAsync", "staged"},
    {"cudaMemcpyAsync:2:error", "'first'.*cudaMemcpyAsync", "staged"},
    {"cudaMemcpyAsync:7:error", "'(block|wait|stream)'.*cudaMemcpyAsync", "staged"},
    {"copy:3:sticky", "'(block|wait|stream)'.*(CUDA|cuda)", "staged"},
    {"cudaEventRecord:3:error", "'first'.*cudaEventRecord", "staged"},
    {"cudaEventSynchronize:2:error", "'first'.*device 0", "staged"},
};

RankPlan plan_of(const Failing& failing, const std::string& fault) {
  RankPlan plan{{}, {"rounds=100000"}};
  if (*failing.cuda != '\0') plan.variables.push_back(std::string("KOLO_CUDA=") + failing.cuda);
  if (!fault.empty()) plan.arguments.push_back("fault=" + fault);
  return plan;
}

// A fault that did not come, as the call is made less often than planned, fails the test: then all
// reduce on until the job is ended by force.
TEST(Failing, EveryCallOnce) {
  at_once(std::size(kFailing), [](std::size_t i) {
    const Failing& failing = kFailing[i];
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, failing.plan);
    const Job job(Plans{plan_of(failing, ""), plan_of(failing, failing.plan)});
    job.expect_told(1,
                    {KOLO_CUDA_ERROR, KOLO_NCCL_ERROR, KOLO_RESOURCE, KOLO_ABORTED, KOLO_MISMATCH},
                    kSoon, failing.told);
    job.expect_told(0,
                    {KOLO_CUDA_ERROR, KOLO_NCCL_ERROR, KOLO_RESOURCE, KOLO_ABORTED, KOLO_MISMATCH,
                     KOLO_PEER_LOST},
                    kSoon, "rank 1|'(first|block|wait|stream)'|device 0");
  });
}

// ---- What never ends by itself ------------------------------------------------------------------

struct Stuck {
  const char* plan;
  const char* cuda = "";
  bool is_left = false;  // a call that does not come back: what it holds is never given back
};

const Stuck kStuck[] = {
    {"collective:1:never"},
    {"collective:4:never"},
    {"ncclCommInitRankConfig:1:hang"},
    {"ncclCommInitRankConfig:1:block", "", true},
    {"ncclCommGetAsyncError:1:block", "", true},
    {"ncclAllReduce:4:block", "", true},
    {"ncclGroupEnd:4:block", "", true},
    {"collective:4:never,ncclCommAbort:1:block", "", true},
    {"cudaStreamCreateWithPriority:1:block", "", true},
    {"cudaMemcpyAsync:1:block", "staged", true},
    {"cudaMemcpyAsync:8:block", "staged", true},
    {"cudaHostAlloc:1:block", "staged", true},
};

// Rank 1 has the fault.
struct Ending {
  const char* name;
  std::size_t aborts = 3;  // a rank; 3: none
  std::size_t leaves = 3;
  Blow blow{};
  std::vector<int> statuses;
  const char* text;
};

const std::vector<Ending>& endings() {
  // Who does not take part any more, in the midst of an operation, is lost to the others.
  const std::vector<int> left = {KOLO_ABORTED, KOLO_NOT_INITIALIZED, KOLO_PEER_LOST};
  static const std::vector<Ending> all = {
      {"abort on another rank", 0, 3, {}, {KOLO_ABORTED}, "the test's own"},
      {"abort on that rank", 1, 3, {}, {KOLO_ABORTED}, "the test's own"},
      {"another rank is killed", 3, 3, killed(2, 700), {KOLO_PEER_LOST}, "rank 2"},
      {"another rank is frozen", 3, 3, frozen(2, 700), {KOLO_PEER_LOST}, "rank 2"},
      {"that rank is killed", 3, 3, killed(1, 700), {KOLO_PEER_LOST}, "rank 1"},
      {"another rank leaves", 3, 0, {}, left, "shut ?down"},
      {"that rank leaves", 3, 1, {}, left, "shut ?down|silent"},
  };
  return all;
}

RankPlan plan_of(const Stuck& stuck, const Ending& ending, std::size_t rank) {
  RankPlan plan{
      {"KOLO_START_TIMEOUT_MS=20000", "KOLO_PEER_TIMEOUT_MS=1500", "KOLO_SHUTDOWN_TIMEOUT_MS=1500"},
      {"rounds=1000000"}};
  if (*stuck.cuda != '\0') plan.variables.push_back(std::string("KOLO_CUDA=") + stuck.cuda);
  if (rank == 1) plan.arguments.push_back(std::string("fault=") + stuck.plan);
  if (rank == 1 && stuck.is_left) plan.arguments.emplace_back("stuck");
  if (ending.aborts == rank) plan.arguments.emplace_back("abort=700");
  if (ending.leaves == rank) plan.arguments.emplace_back("leave=700");
  return plan;
}

void expect_ended(const Stuck& stuck, const Ending& ending) {
  const Job job(
      Plans{plan_of(stuck, ending, 0), plan_of(stuck, ending, 1), plan_of(stuck, ending, 2)},
      ending.blow);
  for (const std::size_t rank : {0, 1, 2}) {
    if (ending.blow.kind == Blow::Kind::kKill && rank == ending.blow.rank) continue;
    if (ending.blow.kind == Blow::Kind::kFreeze && rank == ending.blow.rank) {
      job.expect_told(rank, {KOLO_PEER_LOST, KOLO_ABORTED}, kSoon, "rank");
      continue;
    }
    job.expect_told(rank, ending.statuses, kSoon, ending.text);
    for (const char* who : {"leave", "shutdown"}) {
      const Said* said = job.of(rank).find(who);
      if (ending.leaves != rank && std::string(who) == "leave") continue;
      ASSERT_NE(said, nullptr) << who << job.of(rank).ended.output;
      EXPECT_LT(said->ms, std::string(who) == "leave" ? 6000 : kSoon) << job.of(rank).ended.output;
    }
  }
}

TEST(Stuck, EveryEndOfEveryFault) {
  const std::size_t ways = endings().size();
  at_once(std::size(kStuck) * ways, [&](std::size_t i) {
    const Stuck& stuck = kStuck[i / ways];
    const Ending& ending = endings()[i % ways];
    const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                       std::string(stuck.plan) + "; " + ending.name);
    expect_ended(stuck, ending);
  });
}

// ---- A word about it ----------------------------------------------------------------------------

void expect_warning(const std::string& fault, const std::string& text) {
  const RankPlan plan{{"KOLO_STALL_WARNING_MS=700"}, {"rounds=1000000"}};
  RankPlan faulty = plan;
  faulty.arguments.insert(faulty.arguments.end(), {"fault=" + fault, "stuck"});
  RankPlan aborting = plan;
  aborting.arguments.emplace_back("abort=3500");
  const Job job(Plans{aborting, faulty});
  EXPECT_THAT(job.of(1).ended.output, testing::ContainsRegex("warning: stall: .*" + text));
  for (const std::size_t rank : {0, 1}) job.expect_told(rank, {KOLO_ABORTED}, kSoon, "own");
}

TEST(Stall, AKernelThatNeverEndsIsWarnedOf) {
  expect_warning("collective:1:never",
                 "'first' was launched on CUDA device 0 .* does not end .*kolo_abort");
}
TEST(Stall, ACallThatNeverComesBackIsWarnedOf) {
  expect_warning("ncclAllReduce:1:block",
                 "'first' has waited .* for its launch .*NCCL_DEBUG=INFO .*kolo_abort");
}

}  // namespace
}  // namespace gpu_test
