// The in-memory road under the conformance suites: plain, and with stalls and short moves.
#include "tests/conformance/adasum_suite.h"
#include "tests/conformance/channel_suite.h"
#include "tests/conformance/collectives_suite.h"
#include "tests/conformance/drop_suite.h"
#include "tests/conformance/inproc_mesh.h"
#include "tests/conformance/loss_suite.h"
#include "tests/conformance/ragged_suite.h"

namespace kolo::internal {
namespace {

Road plain() {
  return {.name = "Plain", .make = [](int size, std::uint64_t) { return inproc_mesh(size, {}); }};
}

Road faulty() {
  return {.name = "Faulty", .make = [](int size, std::uint64_t seed) {
            return inproc_mesh(size, {.seed = seed, .max_move_bytes = 100000, .stall_percent = 30});
          }};
}

INSTANTIATE_TEST_SUITE_P(Inproc, ChannelSuite, testing::Values(plain(), faulty()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Inproc, CollectivesSuite,
                         testing::Values(over_channels(plain()), over_channels(faulty())),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Inproc, LossSuite,
                         testing::Values(over_channels(plain()), over_channels(faulty())),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Inproc, AdasumSuite,
                         testing::Values(over_channels(plain()), over_channels(faulty())),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Inproc, RaggedSuite,
                         testing::Values(over_channels(plain()), over_channels(faulty())),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Inproc, DropSuite, testing::Values(plain(), faulty()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kolo::internal
