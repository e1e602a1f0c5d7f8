// Collectives with blocks of every size, and Adasum, over windows, and over hosts whose ranks share
// windows. For all others see window_collectives_test.cc and hosts_collectives_test.cc.
#include "tests/conformance/adasum_suite.h"
#include "tests/conformance/hosts_job.h"
#include "tests/conformance/ragged_suite.h"

namespace kolo::internal {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CollectivesSuite);

constexpr InprocFaults kFaults{.seed = 7, .max_move_bytes = 100000, .stall_percent = 30};

INSTANTIATE_TEST_SUITE_P(Window, RaggedSuite,
                         testing::Values(over_windows("Either", TensorsIn::kEither, false),
                                         over_windows("EitherThreads", TensorsIn::kEither, true)),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(Hosts, RaggedSuite,
                         testing::Values(over_hosts("Faulty", TensorsIn::kEither, kFaults, false),
                                         over_hosts("Threads", TensorsIn::kEither, {}, true)),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(Window, AdasumSuite,
                         testing::Values(over_windows("Either", TensorsIn::kEither, false),
                                         over_windows("Threads", TensorsIn::kArena, true)),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(Hosts, AdasumSuite,
                         testing::Values(over_hosts("Faulty", TensorsIn::kEither, kFaults, false),
                                         over_hosts("Threads", TensorsIn::kEither, {}, true)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kolo::internal
