// Whatever goes wrong with a GPU, whoever waits is told in bounded time, by a typed status, and
// nothing is left: ranks are processes with the fakes' faults, and an audit at their exit.
#include <string>

#include "tests/gpu/fakes_job.h"

namespace gpu_test {
namespace {

std::string fault(const std::string& plan) { return "FAKEGPU_FAULT=" + plan; }

constexpr long kSoon = 8000;

TEST(Faults, NoneIsNone) {
  const Job job(Plans(3));
  for (const std::size_t rank : {0, 1, 2}) job.expect(rank, {KOLO_OK}, kSoon);
}

TEST(Faults, AnInitialisationThatHangs) {
  const Job job(Plans{{}, {{fault("ncclCommInitRankConfig:1:hang")}, {}}, {}});
  for (const std::size_t rank : {0, 1, 2}) {
    job.expect_first(rank, {KOLO_TIMED_OUT, KOLO_ABORTED}, kSoon);
  }
}

TEST(Faults, AnInitialisationThatFails) {
  const Job job(Plans{{}, {{fault("ncclCommInitRankConfig:1:error")}, {}}, {}});
  job.expect_first(1, {KOLO_NCCL_ERROR}, kSoon);
  for (const std::size_t rank : {0, 2}) {
    job.expect_first(rank, {KOLO_NCCL_ERROR, KOLO_ABORTED}, kSoon);
  }
}

TEST(Faults, NoMemoryOnTheDeviceOrPinned) {
  for (const char* plan : {"cudaHostAlloc:1:oom", "cudaMalloc:2:oom"}) {
    const Job job(Plans{{{"KOLO_CUDA=staged"}, {}}, {{"KOLO_CUDA=staged", fault(plan)}, {}}});
    const Said* said = job.of(1).find("first");
    ASSERT_NE(said, nullptr) << job.of(1).ended.output;
    if (std::string(plan) == "cudaHostAlloc:1:oom") {
      job.expect_first(1, {KOLO_RESOURCE}, kSoon);
      job.expect_first(0, {KOLO_RESOURCE, KOLO_ABORTED}, kSoon);
    }
  }
}

TEST(Faults, ACopyThatFails) {
  const Job job(Plans{{{"KOLO_CUDA=staged"}, {}},
                      {{"KOLO_CUDA=staged", fault("cudaMemcpyAsync:2:error")}, {}}});
  job.expect_first(1, {KOLO_CUDA_ERROR}, kSoon);
  job.expect_sooner_or_later(0, {KOLO_CUDA_ERROR, KOLO_ABORTED});
}

// The second one is kolo's own, behind the first operation.
TEST(Faults, AnEventThatCannotBeRecorded) {
  for (const char* mode : {"auto", "staged"}) {
    const std::string variable = std::string("KOLO_CUDA=") + mode;
    for (const char* plan : {"cudaEventRecord:1:error", "cudaEventRecord:2:error"}) {
      const Job job(Plans{{{variable}, {}}, {{variable, fault(plan)}, {}}});
      job.expect_first(1, {KOLO_CUDA_ERROR}, kSoon);
      job.expect_sooner_or_later(0, {KOLO_CUDA_ERROR, KOLO_ABORTED, KOLO_PEER_LOST, KOLO_MISMATCH});
    }
  }
}

TEST(Faults, ADeviceThatBreaks) {
  for (const char* mode : {"auto", "staged"}) {
    const std::string variable = std::string("KOLO_CUDA=") + mode;
    const Job job(Plans{{{variable}, {"rounds=200"}},
                        {{variable, fault("cudaStreamWaitEvent:20:sticky")}, {"rounds=200"}}});
    job.expect(1, {KOLO_CUDA_ERROR, KOLO_NCCL_ERROR, KOLO_ABORTED}, kSoon);
    job.expect(0, {KOLO_CUDA_ERROR, KOLO_NCCL_ERROR, KOLO_ABORTED}, kSoon);
  }
}

TEST(Faults, LaunchesThatAreLate) {
  const Job job(Plans{{{fault("collective:*:delay:30000")}, {}}, {}});
  for (const std::size_t rank : {0, 1}) job.expect(rank, {KOLO_OK}, kSoon);
}

TEST(Faults, AnErrorThatComesLater) {
  const Job job(Plans{{{}, {"rounds=50"}},
                      {{fault("collective:6:async-error:3")}, {"rounds=50"}},
                      {{}, {"rounds=50"}}});
  job.expect(1, {KOLO_NCCL_ERROR, KOLO_ABORTED}, kSoon);
  job.expect(0, {KOLO_NCCL_ERROR, KOLO_ABORTED}, kSoon);
}

// ---- Who is stuck -------------------------------------------------------------------------------

TEST(Stuck, AbortEndsAll) {
  const Job job(Plans{{{}, {"abort=500", "rounds=50"}},
                      {{fault("collective:4:never")}, {"rounds=50"}},
                      {{}, {"rounds=50"}}});
  for (const std::size_t rank : {0, 1, 2}) job.expect(rank, {KOLO_ABORTED}, kSoon);
}

TEST(Stuck, ShutdownEndsWhatIsUnderWay) {
  const Job job(Plans{{{"KOLO_SHUTDOWN_TIMEOUT_MS=1000"}, {"leave=300", "rounds=50"}},
                      {{fault("collective:4:never"), "KOLO_SHUTDOWN_TIMEOUT_MS=1000"},
                       {"leave=300", "rounds=50"}}});
  for (const std::size_t rank : {0, 1}) {
    job.expect(rank, {KOLO_ABORTED, KOLO_NOT_INITIALIZED}, kSoon);
  }
}

// A killed rank is what happened, whatever NCCL says of it.
TEST(Stuck, AKilledRankIsALostPeer) {
  for (const char* death : {"FAKEGPU_NCCL_DEATH=error", "FAKEGPU_NCCL_DEATH=stuck"}) {
    const Job job(Plans{{{death}, {"rounds=1000000"}},
                        {{death}, {"rounds=1000000"}},
                        {{death, fault("collective:9:never")}, {"rounds=1000000"}}},
                  killed(2, 1000));
    EXPECT_EQ(job.of(2).ended.signal, 9);
    for (const std::size_t rank : {0, 1}) {
      job.expect(rank, {KOLO_PEER_LOST}, kSoon, "rank 2");
    }
  }
}

TEST(Stuck, AKilledRankIsALostPeerWhereAllIsStaged) {
  const RankPlan plan{{"KOLO_CUDA=staged"}, {"rounds=1000000"}};
  const Job job(Plans{plan, plan, plan}, killed(1, 500));
  for (const std::size_t rank : {0, 2}) job.expect(rank, {KOLO_PEER_LOST}, kSoon, "rank 1");
}

TEST(Stuck, ARankThatIsKilledWhileOthersMeetIt) {
  const Job job(Plans{{{}, {}}, {{fault("ncclCommInitRankConfig:1:hang")}, {}}, {{}, {}}},
                killed(1, 300));
  for (const std::size_t rank : {0, 2}) job.expect_first(rank, {KOLO_PEER_LOST}, 2500);
}

// Its communicators go without waiting for others that are still at work.
TEST(Stuck, ARankThatLeavesFirst) {
  const Job job(Plans{{{}, {}}, {{}, {"late=3000"}}});
  for (const std::size_t rank : {0, 1}) {
    job.expect(rank, {KOLO_OK}, kSoon);
    const Said* said = job.of(rank).find("shutdown");
    ASSERT_NE(said, nullptr) << job.of(rank).ended.output;
    EXPECT_EQ(said->status, KOLO_OK) << job.of(rank).ended.output;
    EXPECT_LT(said->ms, rank == 0 ? 2500 : 4500) << job.of(rank).ended.output;
  }
}

TEST(Stuck, ARankKilledAmongOthersAtWork) {
  for (const char* death : {"FAKEGPU_NCCL_DEATH=error", "FAKEGPU_NCCL_DEATH=stuck"}) {
    const Job job(Plans{{{death}, {"rounds=1000000"}}, {{death}, {"rounds=1000000"}}},
                  killed(0, 1000));
    job.expect(1, {KOLO_PEER_LOST}, kSoon, "rank 0");
  }
}

}  // namespace
}  // namespace gpu_test
