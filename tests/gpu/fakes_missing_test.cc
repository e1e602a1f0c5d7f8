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
