// Host lists, hostfiles and placement.
#include "launcher/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kolo::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Host> list(std::string_view text) {
  auto hosts = parse_host_list(text);
  EXPECT_TRUE(hosts.is_ok()) << hosts.status().text();
  return hosts ? *hosts : std::vector<Host>{};
}

std::string list_error(std::string_view text) {
  auto hosts = parse_host_list(text);
  EXPECT_FALSE(hosts.is_ok()) << text;
  return hosts.status().text();
}

std::vector<Host> file(std::string_view text) {
  auto hosts = parse_hostfile(text, "hosts");
  EXPECT_TRUE(hosts.is_ok()) << hosts.status().text();
  return hosts ? *hosts : std::vector<Host>{};
}

std::string file_error(std::string_view text) {
  auto hosts = parse_hostfile(text, "hosts");
  EXPECT_FALSE(hosts.is_ok()) << text;
  return hosts.status().text();
}

TEST(HostList, NamesSlotsUsersAndAddresses) {
  EXPECT_THAT(list("a:4,b"), ElementsAre(Host{"a", 4}, Host{"b", 1}));
  EXPECT_THAT(list("me@a:2, 10.0.0.1:3"), ElementsAre(Host{"me@a", 2}, Host{"10.0.0.1", 3}));
  EXPECT_THAT(list("[fd00::1]:2,[fd00::2],me@[::1]:1"),
              ElementsAre(Host{"fd00::1", 2}, Host{"fd00::2", 1}, Host{"me@::1", 1}));
}

TEST(HostList, AHostNamedTwiceAddsUp) {
  EXPECT_THAT(list("a:2,b:1,a:3"), ElementsAre(Host{"a", 5}, Host{"b", 1}));
}

TEST(HostList, Refusals) {
  EXPECT_THAT(list_error("fd00::1:2"), HasSubstr("ambiguous"));
  EXPECT_THAT(list_error("a:0"), HasSubstr("slots"));
  EXPECT_THAT(list_error("a:-1"), HasSubstr("slots"));
  EXPECT_THAT(list_error("a:x"), HasSubstr("'x'"));
  EXPECT_THAT(list_error("a:"), HasSubstr("slots"));
  EXPECT_THAT(list_error(":4"), HasSubstr("no name"));
  EXPECT_THAT(list_error("a,,b"), HasSubstr("empty entry"));
  EXPECT_THAT(list_error(""), HasSubstr("empty entry"));
  EXPECT_THAT(list_error("[fd00::1"), HasSubstr("not closed"));
  EXPECT_THAT(list_error("[fd00::1]2"), HasSubstr("only :slots"));
  EXPECT_THAT(list_error("x[fd00::1]"), HasSubstr("only user@"));
  EXPECT_THAT(list_error("a:4096,a:4096"), HasSubstr("more than"));
}

TEST(HostList, NamesThatSshOrAShellWouldMistake) {
  for (const char* name : {"-oProxyCommand=x", "a;b", "$(x)", "a b", "a`b`", "a|b", "a\nb"}) {
    EXPECT_THAT(list_error(name), HasSubstr("not the name of a host")) << name;
  }
}

TEST(Hostfile, BothSpellingsCommentsAndBlankLines) {
  EXPECT_THAT(
      file("# all\n a slots=4 # big\nb:2\r\n\n\tc\t\nd slots=3 max_slots=8\n[fd00::1]:2"),
      ElementsAre(Host{"a", 4}, Host{"b", 2}, Host{"c", 1}, Host{"d", 3}, Host{"fd00::1", 2}));
}

// A search through all of them for each would take minutes.
TEST(Hostfile, MayNameManyHosts) {
  constexpr int kHosts = 200'000;
  std::string text;
  for (int i = 0; i < 2 * kHosts; ++i) text += "n" + std::to_string(i % kHosts) + "\n";
  const auto hosts = parse_hostfile(text, "hosts");
  ASSERT_TRUE(hosts.is_ok());
  ASSERT_EQ(hosts->size(), static_cast<std::size_t>(kHosts));
  EXPECT_EQ(hosts->back(), (Host{"n" + std::to_string(kHosts - 1), 2}));
}

TEST(Hostfile, ErrorsNameFileAndLine) {
  EXPECT_THAT(file_error("a\nb slots=x\n"), HasSubstr("hosts:2: "));
  EXPECT_THAT(file_error("a slots=0"), HasSubstr("hosts:1: "));
  EXPECT_THAT(file_error("a 4"), HasSubstr("slots=N"));
  EXPECT_THAT(file_error("# nothing\n\n"), HasSubstr("names no host"));
}

Placement place(std::vector<Host> hosts, PlacementRequest request) {
  auto placement = place_ranks(std::move(hosts), request);
  EXPECT_TRUE(placement.is_ok()) << placement.status().text();
  return placement ? *placement : Placement{};
}

std::vector<std::array<int, 2>> blocks(const Placement& placement) {
  std::vector<std::array<int, 2>> result;
  for (const auto& here : placement.hosts) result.push_back({here.first_rank, here.rank_count});
  return result;
}

using Block = std::array<int, 2>;

TEST(Placement, BlocksByHost) {
  EXPECT_THAT(blocks(place({{"a", 2}, {"b", 3}}, {.rank_count = 4})),
              ElementsAre(Block{0, 2}, Block{2, 2}));
  EXPECT_THAT(blocks(place({{"a", 2}, {"b", 3}}, {})), ElementsAre(Block{0, 2}, Block{2, 3}));
  // Hosts without ranks get no agent.
  EXPECT_THAT(blocks(place({{"a", 4}, {"b", 3}}, {.rank_count = 3})), ElementsAre(Block{0, 3}));
}

TEST(Placement, RanksPerHost) {
  EXPECT_THAT(blocks(place({{"a", 1}, {"b", 8}}, {.ranks_per_host = 2})),
              ElementsAre(Block{0, 2}, Block{2, 2}));
  EXPECT_THAT(blocks(place({{"a", 1}, {"b", 8}}, {.rank_count = 3, .ranks_per_host = 2})),
              ElementsAre(Block{0, 2}, Block{2, 1}));
}

TEST(Placement, WithoutHostsLocalhostHasEnough) {
  const Placement placement = place({}, {.rank_count = 64, .local_cores = 2});
  ASSERT_EQ(placement.hosts.size(), 1u);
  EXPECT_EQ(placement.hosts[0].host.name, "localhost");
  EXPECT_EQ(placement.size, 64);
  EXPECT_EQ(place({}, {.all_slots = true, .local_cores = 6}).size, 6);
}

TEST(Placement, Refusals) {
  const auto error = [](std::vector<Host> hosts, PlacementRequest request) {
    auto placement = place_ranks(std::move(hosts), request);
    EXPECT_FALSE(placement.is_ok());
    return placement.status().text();
  };
  EXPECT_THAT(error({{"a", 2}, {"b", 1}}, {.rank_count = 4}),
              ::testing::AllOf(HasSubstr("4"), HasSubstr("3 slots"), HasSubstr("a:2, b:1")));
  EXPECT_THAT(error({}, {}), HasSubstr("-np"));
  EXPECT_THAT(error({{"a", 4000}, {"b", 4000}}, {}), HasSubstr("at most"));
}

TEST(Hosts, NamesThisMachine) {
  EXPECT_TRUE(names_this_machine("localhost", "me"));
  EXPECT_TRUE(names_this_machine("127.0.1.1", "me"));
  EXPECT_TRUE(names_this_machine("::1", "me"));
  EXPECT_TRUE(names_this_machine("me", "me"));
  EXPECT_FALSE(names_this_machine("other", "me"));
  EXPECT_FALSE(names_this_machine("other", ""));
}

}  // namespace
}  // namespace kolo::internal
