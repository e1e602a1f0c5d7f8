// Doses of random programs over one road: KOLO_TEST_TRANSPORT (shm if not set). With
// KOLO_TEST_LONG=1 a thousand programs, else a few seconds of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/multiproc/cases/case_launch.h"

namespace kolo::test {
namespace {

struct Dose {
  int ranks;
  int programs;  // of a thousand
  std::uint64_t seed;
  Flags flags;
};

// Small limits meet every path with small tensors.
const std::vector<Dose>& doses() {
  static const std::vector<Dose> all = {
      {3, 400, 1, {}},
      {2, 200, 100'001, {"-x", "KOLO_FUSION_TENSOR_BYTES=64"}},
      {4, 200, 200'001, {"-x", "KOLO_FUSION_THRESHOLD_BYTES=3000"}},
      {3, 200, 300'001, {"-x", "KOLO_CACHE_CAPACITY=16", "-x", "KOLO_FUSION_THRESHOLD_BYTES=0"}},
  };
  return all;
}

class RandomPrograms : public ::testing::TestWithParam<std::size_t> {};

TEST_P(RandomPrograms, GiveWhatPlainLoopsGive) {
  const Dose& dose = doses()[GetParam()];
  const int programs = long_tests() ? dose.programs : dose.programs / 20;
  std::vector<std::string> command = {kolorun(), "-np", std::to_string(dose.ranks),
                                      "--start-timeout", "20"};
  for (const std::string& word : over(transport_under_test())) command.push_back(word);
  command.insert(command.end(), dose.flags.begin(), dose.flags.end());
  command.insert(command.end(), {KOLO_RANDOM_RANKS, "--seed", std::to_string(dose.seed),
                                 "--programs", std::to_string(programs)});
  RunOptions options;
  options.timeout_seconds = long_tests() ? 1800 : 120;
  const Outcome outcome = run(command, options);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "");
  std::printf("%d programs in %.1f s\n", programs, outcome.seconds);
}

INSTANTIATE_TEST_SUITE_P(Doses, RandomPrograms, ::testing::Range<std::size_t>(0, doses().size()));

}  // namespace
}  // namespace kolo::test
