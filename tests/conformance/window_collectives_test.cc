// Collectives over windows in memory: tensors in ordinary memory, in arenas, and mixed; ranks on
// one thread, and on threads that sleep and are woken.
#include "tests/conformance/collectives_suite.h"
#include "tests/conformance/window_job.h"

namespace kolo::internal {
namespace {

INSTANTIATE_TEST_SUITE_P(Window, CollectivesSuite,
                         testing::Values(over_windows("Heap", TensorsIn::kHeap, false),
                                         over_windows("Arena", TensorsIn::kArena, false),
                                         over_windows("Either", TensorsIn::kEither, false),
                                         over_windows("HeapThreads", TensorsIn::kHeap, true),
                                         over_windows("EitherThreads", TensorsIn::kEither, true)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kolo::internal
