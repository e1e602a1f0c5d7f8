// What needs a process of its own: the audit at exit, the environment, a host read of device
// memory.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "tests/fakegpu/fakegpu.h"
#include "tests/fakegpu/nccl/nccl_abi.h"
#include "tests/unit/fakegpu/child.h"

namespace fakegpu {
namespace {

using testing::HasSubstr;

Ended act(const std::string& part, const std::vector<std::string>& variables) {
  return run_child(FAKEGPU_ACTOR, {part}, variables);
}

TEST(FakeGpuProcess, LeaksChangeTheExitCode) {
  const Ended ended = act("leak", {"FAKEGPU_CENSUS=1"});
  EXPECT_EQ(ended.exit_code, FAKEGPU_EXIT_CODE) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("events 1, device buffers 1 (100 bytes)"));
  EXPECT_EQ(act("leak", {"FAKEGPU_CENSUS=0"}).exit_code, 0);
}

TEST(FakeGpuProcess, ACleanProcessEndsWithItsOwnCode) {
  const Ended ended = act("clean", {"FAKEGPU_CENSUS=1"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
}

TEST(FakeGpuProcess, MisuseChangesTheExitCode) {
  const Ended ended = act("misuse", {"FAKEGPU_CENSUS=1"});
  EXPECT_EQ(ended.exit_code, FAKEGPU_EXIT_CODE) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("an event was destroyed that is destroyed already"));
}

TEST(FakeGpuProcess, AHostReadOfDeviceMemoryFaults) {
  const Ended ended = act("read", {});
  // Sanitizers report the signal and end with a code of their own.
  EXPECT_TRUE(ended.signal == SIGSEGV || (ended.exit_code != 0 && !ended.output.empty()))
      << ended.exit_code << ended.output;
}

TEST(FakeGpuProcess, TheEnvironmentSaysWhatIsThere) {
  EXPECT_THAT(act("look", {}).output,
              HasSubstr("error 0, devices 2, runtime 13000, last bus id 0000:01:00.0"));
  EXPECT_THAT(act("look", {"FAKEGPU_DEVICES=8", "FAKEGPU_DEVICE_OFFSET=8"}).output,
              HasSubstr("devices 8, runtime 13000, last bus id 0000:0f:00.0"));
  EXPECT_THAT(act("look", {"FAKEGPU_SAME_GPU=1"}).output, HasSubstr("last bus id 0000:00:00.0"));
  EXPECT_THAT(act("look", {"FAKEGPU_DEVICES=0"}).output, HasSubstr("error 100, devices 0"));
  EXPECT_THAT(act("look", {"FAKEGPU_DRIVER=none"}).output, HasSubstr("error 35, devices 0"));
  EXPECT_THAT(act("look", {"FAKEGPU_CUDART_VERSION=11080"}).output, HasSubstr("runtime 11080"));
  EXPECT_THAT(act("look", {"FAKEGPU_FAULT=cudaGetDeviceCount:1:error:3"}).output,
              HasSubstr("error 3, devices 0"));
}

TEST(FakeGpuProcess, APlanThatCannotBeReadIsMisuse) {
  const Ended ended = act("clean", {"FAKEGPU_CENSUS=1", "FAKEGPU_FAULT=cudaMalloc:first:oom"});
  EXPECT_EQ(ended.exit_code, FAKEGPU_EXIT_CODE);
  EXPECT_THAT(ended.output, HasSubstr("FAKEGPU_FAULT cannot be read"));
}

TEST(FakeGpuProcess, OldLibrariesLackWhatCameLater) {
  void* runtime = dlopen(FAKEGPU_OLD_CUDART, RTLD_NOW | RTLD_LOCAL);
  void* nccl = dlopen(FAKEGPU_OLD_NCCL, RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(runtime != nullptr && nccl != nullptr) << dlerror();
  EXPECT_NE(dlsym(runtime, "cudaLaunchKernel"), nullptr);
  EXPECT_EQ(dlsym(runtime, "cudaLibraryLoadData"), nullptr);
  EXPECT_NE(dlsym(nccl, "ncclAllReduce"), nullptr);
  EXPECT_EQ(dlsym(nccl, "ncclMemAlloc"), nullptr);
  EXPECT_EQ(dlsym(nccl, "ncclCommShrink"), nullptr);
}

// Makes the id of a communicator, and starts its ranks with these variables.
class Ranks {
 public:
  explicit Ranks(const std::vector<std::vector<std::string>>& variables)
      : size_(static_cast<int>(variables.size())) {
    kolo::internal::nccl::UniqueId id;
    EXPECT_EQ(kolo::internal::nccl::ncclGetUniqueId(&id), 0);
    for (const char byte : id.bytes) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
      id_ += digits;
    }
    for (const auto& mine : variables) start(mine);
  }
  Child& operator[](std::size_t rank) { return *ranks_[rank]; }

 private:
  void start(std::vector<std::string> variables) {
    variables.emplace_back("FAKEGPU_CENSUS=1");
    const std::vector<std::string> arguments = {"all-reduce", id_, std::to_string(size_),
                                                std::to_string(ranks_.size())};
    ranks_.push_back(std::make_unique<Child>(FAKEGPU_ACTOR, arguments, variables));
  }

  const int size_;
  std::string id_;
  std::vector<std::unique_ptr<Child>> ranks_;
};

TEST(FakeGpuProcess, ProcessesReduceTogether) {
  Ranks ranks(
      {{"FAKEGPU_DEVICE_OFFSET=0"}, {"FAKEGPU_DEVICE_OFFSET=1"}, {"FAKEGPU_DEVICE_OFFSET=2"}});
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Ended ended = ranks[rank].wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.output;
  }
}

TEST(FakeGpuProcess, RanksOnOneDeviceNeedDifferentHosts) {
  Ranks refused({{}, {}});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(refused[rank].wait().exit_code, 10 + kolo::internal::nccl::kInvalidUsage);
  }
  Ranks accepted({{"NCCL_HOSTID=a"}, {"NCCL_HOSTID=b"}});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(accepted[rank].wait().exit_code, 0);
  }
}

// One rank comes, and never to the collective; then it is killed.
TEST(FakeGpuProcess, TheDeathOfARankIsSeenWhereThatIsAskedFor) {
  Ranks ranks({{"FAKEGPU_DEVICE_OFFSET=0", "FAKEGPU_NCCL_DEATH=error"},
               {"FAKEGPU_DEVICE_OFFSET=1", "FAKEGPU_FAULT=rank-never-arrives"}});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ranks[1].kill();
  EXPECT_EQ(ranks[1].wait().signal, SIGKILL);
  const Ended ended = ranks[0].wait();
  EXPECT_EQ(ended.exit_code, 10 + kolo::internal::nccl::kRemoteError) << ended.output;
}

}  // namespace
}  // namespace fakegpu
