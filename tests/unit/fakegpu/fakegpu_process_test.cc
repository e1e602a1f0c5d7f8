// What needs a process of its own: the audit at exit, the environment, a host read of device
// memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/fakegpu/fakegpu.h"
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

}  // namespace
}  // namespace fakegpu
