// The Window suite on plain memory of one process.
#include "tests/conformance/window_suite.h"
#include "transport/inproc/inproc_window.h"

namespace kolo::internal {
namespace {

struct Inproc {
  static std::vector<std::unique_ptr<Window>> make(int size, std::size_t bytes) {
    auto windows = make_inproc_windows(size, bytes);
    EXPECT_TRUE(windows.is_ok()) << windows.status().to_string();
    return windows ? std::move(*windows) : std::vector<std::unique_ptr<Window>>();
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Inproc, WindowSuite, Inproc);

}  // namespace
}  // namespace kolo::internal
