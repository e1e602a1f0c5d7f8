// kolorun from an interactive shell: a background job, the body of a loop, stdin closed, Ctrl-C.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

class S48 : public ::testing::TestWithParam<const char*> {};

TEST_P(S48, FromAnInteractiveShell) {
  const TemporaryFolder folder;
  const std::string rounds = long_tests() ? "500" : "3";
  const Outcome outcome = run(
      {"/bin/sh", "-c", "cd \"$1\" && exec python3 \"$0\" \"$2\" \"$3\" \"$4\"", KOLO_TERMINAL,
       folder.path(), KOLO_KOLORUN, GetParam(), rounds},
      {.timeout_seconds = long_tests() ? 3600.0 : 60.0, .environment = {}, .raw_environment = {}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  if (!HasFailure())
    std::printf("%s: %s rounds, %.1f s\n", GetParam(), rounds.c_str(), outcome.seconds);
}

INSTANTIATE_TEST_SUITE_P(Cases, S48,
                         ::testing::Values("background", "loop", "closed", "once", "twice"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace kolo::test
