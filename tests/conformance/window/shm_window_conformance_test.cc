// The Window suite on shared memory, with all ranks in one process.
#include "tests/conformance/window/shm_meet.h"
#include "tests/conformance/window_suite.h"

namespace kolo::internal {
namespace {

struct Shm {
  static std::vector<std::unique_ptr<Window>> make(int size, std::size_t bytes) {
    const std::string place = fresh_place();
    std::vector<ShmOptions> options;
    for (int rank = 0; rank < size; ++rank) {
      options.push_back(shm_options(rank, size, place, bytes));
    }
    std::vector<std::unique_ptr<Window>> windows;
    for (MetWindow& met : meet_in_threads(options)) {
      EXPECT_TRUE(met.is_ok()) << met.status().to_string();
      if (!met) return {};
      windows.push_back(std::move(*met));
    }
    return windows;
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Shm, WindowSuite, Shm);

}  // namespace
}  // namespace kolo::internal
