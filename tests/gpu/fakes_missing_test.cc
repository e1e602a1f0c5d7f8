// What is not there: without NCCL tensors go through host memory, with one word about it; without
// CUDA those in host memory go on, and whoever names a device is told why not, and the cure.
#include <gmock/gmock.h>

#include "tests/gpu/fakes_job.h"

namespace gpu_test {
namespace {

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

TEST(Missing, WithoutNcclOneLineAndStaged) {
  const RankPlan plan{{"KOLO_NCCL_PATH=/nowhere/libnccl.so.2", "KOLO_LOG_LEVEL=info"},
                      {"rounds=20"}};
  const Job job({plan, plan});
  for (const std::size_t rank : {0, 1}) {
    job.expect(rank, {KOLO_OK}, 8000);
    EXPECT_EQ(count(job.of(rank).ended.output, "goes through host memory"), 1U)
        << job.of(rank).ended.output;
    EXPECT_THAT(job.of(rank).ended.output, testing::HasSubstr("KOLO_NCCL_PATH"));
  }
}

// ---- Two ranks on one GPU -----------------------------------------------------------------------

// NCCL shares one from 2.30 on, if it was told to on both ranks.
void expect_sharing(const std::string& version, const std::vector<std::string>& switches,
                    bool by_nccl) {
  Plans plans;
  for (const std::string& one : switches) {
    plans.push_back({{"FAKEGPU_SAME_GPU=1", "FAKEGPU_NCCL_VERSION=" + version,
                      "NCCL_MULTI_RANK_GPU_ENABLE=" + one},
                     {"rounds=20"}});
  }
  const Job job(plans);
  for (const std::size_t rank : {0, 1}) {
    job.expect(rank, {KOLO_OK}, 8000);
    const std::string& output = job.of(rank).ended.output;
    EXPECT_EQ(count(output, "are on one GPU, which NCCL does not serve"), by_nccl ? 0U : 1U)
        << output;
    EXPECT_EQ(count(output, "CALLS OF NCCL 0"), by_nccl ? 0U : 1U) << output;
  }
}

TEST(OneGpu, OfAnOlderNcclIsStaged) { expect_sharing("22809", {"1", "1"}, false); }
TEST(OneGpu, WithoutTheSwitchIsStaged) { expect_sharing("23000", {"", "0"}, false); }
TEST(OneGpu, WithTheSwitchOfOneRankIsStaged) { expect_sharing("23000", {"1", "0"}, false); }
TEST(OneGpu, WithTheSwitchIsShared) { expect_sharing("23000", {"1", "1"}, true); }

// ---- No CUDA ------------------------------------------------------------------------------------

void expect_host_only(const std::string& variable, const std::string& cure) {
  const RankPlan plan{{variable}, {"host"}};
  const Job job({plan, plan});
  for (const std::size_t rank : {0, 1}) {
    const Outcome& outcome = job.of(rank);
    EXPECT_EQ(outcome.ended.exit_code, 0) << outcome.ended.output;
    for (const char* who : {"before", "after", "shutdown"}) {
      const Said* said = outcome.find(who);
      ASSERT_NE(said, nullptr) << who << outcome.ended.output;
      EXPECT_EQ(said->status, KOLO_OK) << outcome.ended.output;
    }
    for (const char* who : {"device", "memory"}) {
      const Said* said = outcome.find(who);
      ASSERT_NE(said, nullptr) << who << outcome.ended.output;
      EXPECT_EQ(said->status, KOLO_UNSUPPORTED) << outcome.ended.output;
      EXPECT_THAT(said->text, testing::HasSubstr(cure));
    }
  }
}

TEST(Missing, WithoutTheRuntime) {
  expect_host_only("KOLO_CUDART_PATH=/nowhere/libcudart.so.13", "KOLO_CUDART_PATH");
}
TEST(Missing, WithoutADriver) {
  expect_host_only("FAKEGPU_DRIVER=none", "install NVIDIA's driver");
}
TEST(Missing, WithoutDevices) {
  expect_host_only("FAKEGPU_DEVICES=0", "look at nvidia-smi and at CUDA_VISIBLE_DEVICES");
}
TEST(Missing, TurnedOff) { expect_host_only("KOLO_CUDA=off", "KOLO_CUDA=off"); }

}  // namespace
}  // namespace gpu_test
