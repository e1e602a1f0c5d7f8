// Jobs over two and four hosts, which are network namespaces.
#include "tests/multihost/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

namespace kolo::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kRanks = KOLO_CASE_RANKS;

struct Layout {
  int hosts;
  int ranks_per_host;
};
constexpr Layout kLayouts[] = {{2, 1}, {2, 2}, {4, 1}, {4, 2}};

class MultiHost : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string obstacle = Hosts::obstacle();
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  }
};

std::vector<std::uint64_t> sent_by_all(const Hosts& hosts) {
  std::vector<std::uint64_t> sent;
  for (int host = 0; host < hosts.count(); ++host) sent.push_back(hosts.sent_bytes(host));
  return sent;
}

TEST_F(MultiHost, BytesGoOverTheWire) {
  constexpr std::uint64_t kMessageBytes = 1 << 20;  // of the situation "wire"
  for (const Layout& layout : kLayouts) {
    const Hosts hosts(layout.hosts);
    const auto before = sent_by_all(hosts);
    const Outcome outcome = hosts.launch(layout.ranks_per_host, {kRanks, "wire"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const auto after = sent_by_all(hosts);
    for (std::size_t host = 0; host < after.size(); ++host) {
      // Its results need everybody's numbers, so every host sends at least its share.
      EXPECT_GT(after[host] - before[host], kMessageBytes / 2) << layout.hosts << " hosts";
    }
  }
}

TEST_F(MultiHost, SituationsHoldAcrossHosts) {
  for (const Layout& layout : {Layout{2, 2}, Layout{4, 1}}) {
    const Hosts hosts(layout.hosts);
    for (const char* id : {"bad-on-one", "persistent", "unnamed", "callbacks", "timeout", "abort",
                           "shutdown-by-one", "shutdown-in-turn", "rounds"}) {
      const Outcome outcome = hosts.launch(layout.ranks_per_host, {kRanks, id});
      EXPECT_EQ(outcome.exit_code, 0) << id << "\n" << outcome.out << outcome.err;
    }
  }
}

TEST_F(MultiHost, TwoAndThreeRankSituations) {
  const Hosts two(2);
  for (const char* algorithm : {"direct", "ring"}) {
    for (const char* id : {"S01", "S05", "S06", "S09", "S10", "S14", "S15", "S16", "S20"}) {
      const Outcome outcome = two.launch(1, {kRanks, id}, {"--algorithm", algorithm});
      EXPECT_EQ(outcome.exit_code, 0) << id << "\n" << outcome.out << outcome.err;
    }
  }
}

std::string weights_of(const Outcome& outcome) {
  std::smatch match;
  if (!std::regex_search(outcome.out, match, std::regex("weights ([0-9a-f]{16}) "))) return "none";
  return match[1];
}

// The bits do not change with the layout where every host has the same power of two of ranks.
TEST_F(MultiHost, DigitsEndWithTheSameWeightsInEveryLayout) {
  std::string reference;
  for (const Layout& layout : {Layout{1, 4}, Layout{2, 2}, Layout{4, 1}}) {
    const Hosts hosts(layout.hosts);
    const Outcome outcome = hosts.launch(layout.ranks_per_host, {KOLO_DIGITS, "--seed", "1"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("equal on all ranks"));
    const std::string weights = weights_of(outcome);
    ASSERT_NE(weights, "none") << outcome.out;
    if (reference.empty()) reference = weights;
    EXPECT_EQ(weights, reference) << layout.hosts << " hosts";
    for (int host = 0; host < hosts.count(); ++host) {
      const std::uint64_t least = layout.hosts > 1 ? 100'000 : 0;
      EXPECT_GE(hosts.sent_bytes(host), least);
    }
  }
}

void expect_survivors(const Outcome& outcome, int survivors) {
  EXPECT_EQ(outcome.exit_code, 137) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("case_ranks:")));
  int found = 0;
  for (const std::string& line : lines_of(outcome.err)) {
    if (line.find("survived rank") != std::string::npos) ++found;
  }
  EXPECT_EQ(found, survivors) << outcome.err;
}

TEST_F(MultiHost, ARankThatDiesOnAnotherHostIsALostPeerEverywhere) {
  for (const Layout& layout : {Layout{2, 1}, Layout{2, 2}, Layout{4, 1}}) {
    const Hosts hosts(layout.hosts);
    expect_survivors(hosts.launch(layout.ranks_per_host, {kRanks, "lost-last"}),
                     layout.hosts * layout.ranks_per_host - 1);
  }
}

// Rank 2 of 2x2 leads the second host.
TEST_F(MultiHost, ALeaderThatIsNotTheRootDies) {
  const Hosts hosts(2);
  expect_survivors(hosts.launch(2, {kRanks, "lost-by-kill"}), 3);
}

TEST_F(MultiHost, AStallNamesTheMissingRankOnAnotherHost) {
  const Hosts hosts(2);
  const Outcome outcome =
      hosts.launch(2, {kRanks, "stall-last"}, {"--stall-check-shutdown-time-seconds", "1.5"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("'late' missing on rank 3"));
}

TEST_F(MultiHost, NothingIsLeftBehind) {
  std::string name;
  {
    const Hosts hosts(2);
    name = hosts.name(1);
    EXPECT_TRUE(std::filesystem::exists("/run/netns/" + name));
  }
  EXPECT_FALSE(std::filesystem::exists("/run/netns/" + name));
}

}  // namespace
}  // namespace kolo::test
