// Jobs over two and four hosts, which are network namespaces.
#include "tests/multihost/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <regex>

#include "tests/multiproc/bits/plain.h"

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
      const std::string road = layout.ranks_per_host > 1 ? "shm+tcp" : "tcp";
      const Outcome outcome =
          hosts.launch(layout.ranks_per_host, {kRanks, id}, {"-x", "KOLO_TEST_ROAD=" + road});
      EXPECT_EQ(outcome.exit_code, 0) << id << "\n" << outcome.out << outcome.err;
    }
  }
}

TEST_F(MultiHost, TwoAndThreeRankSituations) {
  const Hosts two(2);
  for (const char* algorithm : {"direct", "ring"}) {
    for (const char* id : {"S01", "S05", "S06", "S09", "S10", "S11", "S14", "S15", "S16", "S20"}) {
      const Outcome outcome = two.launch(1, {kRanks, id}, {"--algorithm", algorithm});
      EXPECT_EQ(outcome.exit_code, 0) << id << "\n" << outcome.out << outcome.err;
    }
  }
}

// 2 + 1: shared memory and the wire both.
TEST_F(MultiHost, ThreeRankSituationsOnTwoHosts) {
  const Hosts two(2);
  for (const char* id : {"S02", "S03", "S08.3", "S12", "S13", "S19", "same-bits"}) {
    const Outcome outcome = two.launch_on({2, 1}, {kRanks, id}, {"-x", "KOLO_TEST_ROAD=shm+tcp"});
    EXPECT_EQ(outcome.exit_code, 0) << id << "\n" << outcome.out << outcome.err;
  }
}

std::string weights_of(const Outcome& outcome) {
  std::smatch match;
  if (!std::regex_search(outcome.out, match, std::regex("weights ([0-9a-f]{16}) "))) return "none";
  return match[1];
}

// The bits do not change with the layout where every host has the same power of two of ranks, nor
// with the road; and they are those of plain loops.
TEST_F(MultiHost, DigitsEndWithTheWeightsOfPlainLoopsInEveryLayout) {
  RunOptions patient;
  patient.timeout_seconds = 90;
  const std::string reference =
      weights_of(run({KOLO_DIGITS, "--shards", "4", "--seed", "1"}, patient));
  ASSERT_NE(reference, "none");
  for (const Layout& layout : {Layout{1, 4}, Layout{2, 2}, Layout{4, 1}}) {
    const Hosts hosts(layout.hosts);
    for (const char* transport : {"auto", "tcp"}) {
      const std::string name = std::to_string(layout.hosts) + " hosts by " + transport;
      const auto before = sent_by_all(hosts);
      const Outcome outcome = hosts.launch(layout.ranks_per_host, {KOLO_DIGITS, "--seed", "1"},
                                           {"-x", std::string("KOLO_TRANSPORT=") + transport});
      ASSERT_EQ(outcome.exit_code, 0) << name << outcome.out << outcome.err;
      EXPECT_THAT(outcome.out, HasSubstr("equal on all ranks"));
      EXPECT_EQ(weights_of(outcome), reference) << name;
      const auto after = sent_by_all(hosts);
      for (std::size_t host = 0; host < after.size(); ++host) {
        const std::uint64_t least = layout.hosts > 1 ? 100'000 : 0;
        EXPECT_GE(after[host] - before[host], least) << name;
      }
    }
  }
}

// The same for tensors of all kinds (tests/multiproc/bits), where a host may have another number.
TEST_F(MultiHost, BitsAreThoseOfPlainLoopsInEveryLayout) {
  constexpr std::uint64_t kSeed = 57;
  struct Scene {
    std::vector<int> ranks;
    std::string transport;
    std::string road;
  };
  for (const Scene& scene : {Scene{{2, 2}, "auto", "shm+tcp"}, Scene{{2, 2}, "tcp", "tcp"},
                             Scene{{1, 1, 1, 1}, "auto", "tcp"}, Scene{{2, 1}, "auto", "shm+tcp"},
                             Scene{{2, 1}, "tcp", "tcp"}}) {
    const Hosts hosts(static_cast<int>(scene.ranks.size()));
    const Outcome outcome =
        hosts.launch_on(scene.ranks, {KOLO_BITS_RANKS, std::to_string(kSeed), "1"},
                        {"--label=none", "-x", "KOLO_TRANSPORT=" + scene.transport});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    const std::string line =
        "hash " + bits::reference_hash(scene.ranks, kSeed) + " road " + scene.road;
    const auto lines = lines_of(outcome.out);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), line),
              std::accumulate(scene.ranks.begin(), scene.ranks.end(), 0))
        << "not \"" << line << "\" but\n"
        << outcome.out;
  }
}

// Both hosts call themselves "node".
TEST_F(MultiHost, S57) {
  const Hosts hosts(2);
  const TemporaryFolder folder;
  const std::string enter = folder.script(
      "enter", "exec unshare --uts sh -c 'hostname node && exec \"$0\" netns exec \"$@\"' " +
                   Hosts::ip_path() + " \"$@\"\n");
  const auto before = sent_by_all(hosts);
  const Outcome outcome =
      hosts.launch_on({2, 2}, {kRanks, "S57"}, {"-x", "KOLO_TEST_ROAD=shm+tcp"}, enter);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* line : {"rank 0 is 0 of 2 on node", "rank 1 is 1 of 2 on node",
                           "rank 2 is 0 of 2 on node", "rank 3 is 1 of 2 on node"}) {
    EXPECT_THAT(outcome.out, HasSubstr(line));
  }
  const auto after = sent_by_all(hosts);
  constexpr std::uint64_t kMessageBytes = 1 << 20;  // of the situation
  for (std::size_t host = 0; host < after.size(); ++host) {
    const std::uint64_t sent = after[host] - before[host];
    EXPECT_GT(sent, kMessageBytes / 2);
    // Between hosts a host sends a message once; its ranks' own exchange stays inside.
    EXPECT_LT(sent, kMessageBytes * 3 / 2);
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
