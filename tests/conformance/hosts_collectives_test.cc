// Collectives over hosts whose ranks share windows, with channels between them: even and uneven
// hosts, tensors in ordinary memory and in arenas, stalling channels, ranks on threads.
#include "tests/conformance/collectives_suite.h"
#include "tests/conformance/hosts_job.h"

namespace kolo::internal {
namespace {

constexpr InprocFaults kFaults{.seed = 5, .max_move_bytes = 100000, .stall_percent = 30};

INSTANTIATE_TEST_SUITE_P(Hosts, CollectivesSuite,
                         testing::Values(over_hosts("Heap", TensorsIn::kHeap, {}, false),
                                         over_hosts("Either", TensorsIn::kEither, {}, false),
                                         over_hosts("Faulty", TensorsIn::kEither, kFaults, false),
                                         over_hosts("Threads", TensorsIn::kEither, {}, true)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kolo::internal
