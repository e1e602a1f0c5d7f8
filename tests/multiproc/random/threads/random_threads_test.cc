// Ranks as threads of one process, through the C API: each has a context of its own, submits from
// several threads, and its callbacks submit too.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/multiproc/random/rank.h"
#include "tests/unit/training/ranks.h"

namespace kolo::programs {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kPrograms = 6;
#else
constexpr int kPrograms = 20;
#endif

void run_on_threads(int ranks, std::uint64_t seed, const char* transport) {
  ASSERT_EQ(setenv("KOLO_TRANSPORT", transport, 1), 0);
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(seed) + kPrograms - 1);
  Dose dose;
  dose.seed = seed;
  dose.programs = kPrograms;
  dose.replay = "random_threads (" + std::to_string(ranks) + " ranks over " + transport +
                "), or: kolorun -np " + std::to_string(ranks) + " --transport " + transport +
                " random_ranks";
  training_test::on_ranks(ranks,
                          [&](kolo::Context& context) { run_programs(context.handle(), dose); });
}

TEST(RandomThreads, OverSharedMemory) { run_on_threads(3, 100, "auto"); }
TEST(RandomThreads, OverTcp) { run_on_threads(3, 200, "tcp"); }
TEST(RandomThreads, TwoRanks) { run_on_threads(2, 300, "auto"); }

}  // namespace
}  // namespace kolo::programs
