// Whatever goes wrong with a GPU, whoever waits is told in bounded time, by a typed status, and
// nothing is left: ranks are processes with the fakes' faults, and an audit at their exit.
#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/fakes.h"
#include "tests/unit/fakegpu/child.h"

namespace gpu_test {
namespace {

struct RankPlan {
  std::vector<std::string> variables;
  std::vector<std::string> arguments;
};

struct Said {
  std::string who;
  int status = -1;
  long ms = 0;
  std::string text;
};

struct Outcome {
  fakegpu::Ended ended;
  std::vector<Said> said;

  [[nodiscard]] const Said* find(const std::string& who) const {
    for (const Said& each : said) {
      if (each.who == who) return &each;
    }
    return nullptr;
  }
};

std::vector<Said> parse(const std::string& output) {
  std::vector<Said> all;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("SAID ", 0) != 0) continue;
    std::istringstream words(line.substr(5));
    Said said;
    std::string skipped;
    words >> said.who >> said.status >> skipped >> said.ms >> skipped;
    std::getline(words, said.text);
    all.push_back(said);
  }
  return all;
}

using Plans = std::vector<RankPlan>;

class Job {
 public:
  explicit Job(const Plans& plans, int kill = -1, int kill_after_ms = 0) {
    const int size = static_cast<int>(plans.size());
    const std::string secret = "a secret of sufficient length";
    auto server = kolo::internal::RendezvousServer::start("127.0.0.1:0", size, {"faults", secret},
                                                          std::chrono::seconds(20));
    EXPECT_TRUE(server.is_ok()) << server.status().to_string();
    if (!server.is_ok()) return;
    std::vector<std::unique_ptr<fakegpu::Child>> children;
    for (int rank = 0; rank < size; ++rank) {
      const RankPlan& plan = plans[static_cast<std::size_t>(rank)];
      const std::string number = std::to_string(rank);
      std::vector<std::string> variables = plan.variables;
      for (const std::string& variable :
           {"KOLO_RANK=" + number, "KOLO_SIZE=" + std::to_string(size), "KOLO_LOCAL_RANK=" + number,
            "KOLO_LOCAL_SIZE=" + std::to_string(size), std::string("KOLO_LAUNCHER=test"),
            std::string("KOLO_JOB=faults"), "KOLO_SECRET=" + secret,
            "KOLO_RENDEZVOUS=" + (*server)->endpoint(), "FAKEGPU_DEVICE_OFFSET=" + number,
            std::string("FAKEGPU_DEVICES=1"), std::string("KOLO_START_TIMEOUT_MS=3000"),
            std::string("KOLO_PEER_TIMEOUT_MS=2000")}) {
        variables.push_back(variable);
      }
      children.push_back(
          std::make_unique<fakegpu::Child>(GPU_FAKES_ACTOR, plan.arguments, variables));
    }
    if (kill >= 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kill_after_ms));
      children[static_cast<std::size_t>(kill)]->kill();
    }
    for (auto& child : children) {
      Outcome outcome;
      outcome.ended = child->wait();
      outcome.said = parse(outcome.ended.output);
      outcomes_.push_back(std::move(outcome));
    }
  }

  [[nodiscard]] const Outcome& of(std::size_t rank) const { return outcomes_.at(rank); }

  // That all three waiters of the rank were told one of the statuses, soon, and nothing is left.
  void expect(std::size_t rank, const std::vector<int>& statuses, long limit_ms,
              const std::string& text = "") const {
    const Outcome& outcome = of(rank);
    const std::string all = "rank " + std::to_string(rank) + " said:\n" + outcome.ended.output;
    EXPECT_EQ(outcome.ended.exit_code, 0) << all;
    for (const char* who : {"block", "wait", "stream"}) {
      const Said* said = outcome.find(who);
      ASSERT_NE(said, nullptr) << who << "; " << all;
      EXPECT_THAT(statuses, testing::Contains(said->status)) << who << "; " << all;
      EXPECT_LT(said->ms, limit_ms) << who << "; " << all;
      EXPECT_THAT(said->text, testing::HasSubstr(text)) << who << "; " << all;
    }
  }
  // That of another rank, whose first operation may have been good already.
  void expect_sooner_or_later(std::size_t rank, const std::vector<int>& statuses) const {
    const Said* said = of(rank).find("first");
    if (said != nullptr && said->status == KOLO_OK) {
      return expect(rank, statuses, 8000);
    }
    expect_first(rank, statuses, 8000);
  }
  // The same of the very first operation, which makes the communicator.
  void expect_first(std::size_t rank, const std::vector<int>& statuses, long limit_ms) const {
    const Outcome& outcome = of(rank);
    const std::string all = "rank " + std::to_string(rank) + " said:\n" + outcome.ended.output;
    EXPECT_EQ(outcome.ended.exit_code, 0) << all;
    const Said* said = outcome.find("first");
    ASSERT_NE(said, nullptr) << all;
    EXPECT_THAT(statuses, testing::Contains(said->status)) << all;
    EXPECT_LT(said->ms, limit_ms) << all;
  }

 private:
  std::vector<Outcome> outcomes_;
};

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
                  2, 1500);
    EXPECT_EQ(job.of(2).ended.signal, 9);
    for (const std::size_t rank : {0, 1}) {
      job.expect(rank, {KOLO_PEER_LOST}, kSoon, "rank 2");
    }
  }
}

TEST(Stuck, ARankKilledAmongOthersAtWork) {
  for (const char* death : {"FAKEGPU_NCCL_DEATH=error", "FAKEGPU_NCCL_DEATH=stuck"}) {
    const Job job(Plans{{{death}, {"rounds=1000000"}}, {{death}, {"rounds=1000000"}}}, 0, 1200);
    job.expect(1, {KOLO_PEER_LOST}, kSoon, "rank 0");
  }
}

}  // namespace
}  // namespace gpu_test
