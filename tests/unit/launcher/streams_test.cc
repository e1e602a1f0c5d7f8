// Bytes: lines of ranks, frames of agents, agent messages, choice of addresses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <random>

#include "launcher/addresses.h"
#include "launcher/frame_reader.h"
#include "launcher/line_merger.h"
#include "transport/rendezvous/agent_codec.h"

namespace kolo::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LineMerger, WholeLinesOnly) {
  LineMerger merger("[3] ");
  std::string out;
  merger.feed("ab", out);
  EXPECT_EQ(out, "");
  merger.feed("c\n\nd", out);
  EXPECT_EQ(out, "[3] abc\n[3] \n");
  out.clear();
  merger.finish(out);
  EXPECT_EQ(out, "[3] d\n");
  merger.finish(out);
  EXPECT_EQ(out, "[3] d\n");
}

TEST(LineMerger, EndlessLinesAreCutAtTheBound) {
  LineMerger merger(">");
  std::string out;
  const std::string longest(LineMerger::kMaxLineBytes, 'x');
  merger.feed(longest, out);
  EXPECT_EQ(out, "");  // whole up to the bound
  merger.feed("\n", out);
  EXPECT_EQ(out, ">" + longest + "\n");
  out.clear();
  merger.feed(longest + "yz\n", out);
  EXPECT_EQ(out, ">" + longest + "\n>yz\n");
}

TEST(LineMerger, AnyPiecesGiveTheSameLines) {
  std::string text;
  std::mt19937 random(20240501);
  for (int i = 0; i < 500; ++i) text += std::string(random() % 50, 'a') + "\n";
  for (std::size_t piece = 1; piece < 60; piece += 7) {
    LineMerger merger("");
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      merger.feed(std::string_view(text).substr(at, piece), out);
    }
    EXPECT_EQ(out, text) << piece;
  }
}

TEST(LineMerger, Labels) {
  EXPECT_EQ(make_label(Label::kRank, 3, 2, false), "[3] ");
  EXPECT_EQ(make_label(Label::kStream, 3, 2, false), "[3]<stderr> ");
  EXPECT_EQ(make_label(Label::kNone, 3, 1, true), "");
  EXPECT_THAT(make_label(Label::kRank, 3, 1, true), HasSubstr("\x1b["));
}

std::vector<std::string> all_frames(FrameReader& reader) {
  std::vector<std::string> frames;
  while (true) {
    auto frame = reader.next();
    EXPECT_TRUE(frame.is_ok());
    if (!frame || !frame->has_value()) return frames;
    frames.push_back(**frame);
  }
}

TEST(FrameReader, CutsAnyPieces) {
  const std::string stream = make_frame("one") + make_frame("") + make_frame(std::string(300, 'x'));
  for (std::size_t piece = 1; piece < stream.size(); ++piece) {
    FrameReader reader;
    std::vector<std::string> frames;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.feed(std::string_view(stream).substr(at, piece));
      for (std::string& frame : all_frames(reader)) frames.push_back(std::move(frame));
    }
    EXPECT_THAT(frames, ElementsAre("one", "", std::string(300, 'x')));
    EXPECT_EQ(reader.rest(), "");
  }
}

TEST(FrameReader, SkipsWhatALoginShellSays) {
  FrameReader reader(kAgentGreeting);
  reader.feed("Welcome!\nLast login: never\n\nkolo-ag");
  EXPECT_TRUE(all_frames(reader).empty());
  EXPECT_FALSE(reader.greeted());
  reader.feed("ent\n" + make_frame("hello"));
  EXPECT_THAT(all_frames(reader), ElementsAre("hello"));
  EXPECT_TRUE(reader.greeted());
}

TEST(FrameReader, BoundsNoiseAndLength) {
  FrameReader noisy(kAgentGreeting);
  noisy.feed(std::string(FrameReader::kMaxNoiseBytes + 1, 'x'));
  EXPECT_FALSE(noisy.next().is_ok());
  FrameReader huge;
  huge.feed("\xff\xff\xff\xff");
  EXPECT_FALSE(huge.next().is_ok());
}

template <typename Message>
void expect_to_agent(const Message& message) {
  const auto back = decode_to_agent(encode(ToAgent(message)));
  ASSERT_TRUE(back.is_ok()) << back.status().text();
  EXPECT_EQ(std::get<Message>(*back), message);
}

template <typename Message>
void expect_from_agent(const Message& message) {
  const auto back = decode_from_agent(encode(FromAgent(message)));
  ASSERT_TRUE(back.is_ok()) << back.status().text();
  EXPECT_EQ(std::get<Message>(*back), message);
}

TEST(AgentCodec, EveryMessageComesBack) {
  expect_to_agent(StartJob{"s", "j", "/d", {"p", "\xff\xfe"}, {"A=\n"}, {{3, {"R=3"}}}, 99, 2000});
  expect_to_agent(DeliverAnswer{7, std::string("\0\1", 2)});
  expect_to_agent(SendSignal{SIGTERM, true, 10000});
  expect_from_agent(AgentHello{1, "0.1", {{"eth0", "10.0.0.1", false}, {"lo", "::1", true}}});
  expect_from_agent(RankStarted{2, 4242});
  expect_from_agent(RankOutput{2, 2, std::string("a\0\xff", 3)});
  expect_from_agent(RankExited{2, 9, Nanos(7), Nanos(5), true, "why"});
  expect_from_agent(RelayJoin{1, "bytes"});
  expect_from_agent(RelayLeft{1});
  expect_from_agent(AgentFailed{"text"});
  expect_from_agent(AgentDone{});
}

TEST(AgentCodec, RefusesWhatAReaderCouldNotUse) {
  EXPECT_FALSE(decode_to_agent("").is_ok());
  EXPECT_FALSE(decode_to_agent("\xff\xff").is_ok());
  EXPECT_FALSE(decode_from_agent("").is_ok());
  EXPECT_FALSE(decode_to_agent(encode(ToAgent(SendSignal{0, false, 0}))).is_ok());
  EXPECT_FALSE(decode_to_agent(encode(ToAgent(SendSignal{1000, false, 0}))).is_ok());
  EXPECT_FALSE(decode_to_agent(encode(ToAgent(StartJob{}))).is_ok());
  const std::string nul("a\0b", 3);
  EXPECT_FALSE(
      decode_to_agent(encode(ToAgent(StartJob{"s", "j", "", {nul}, {}, {{0, {}}}, 0, 0}))).is_ok());
  EXPECT_FALSE(decode_from_agent(encode(FromAgent(RankOutput{-1, 1, ""}))).is_ok());
  EXPECT_FALSE(decode_from_agent(encode(FromAgent(RankOutput{0, 3, ""}))).is_ok());
  EXPECT_FALSE(decode_from_agent(encode(FromAgent(RankStarted{0, -1}))).is_ok());
}

const std::vector<HostAddress> kPresent = {{"lo", "127.0.0.1", true},
                                           {"eth0", "10.1.2.3", false},
                                           {"eth1", "192.168.7.1", false},
                                           {"docker0", "172.17.0.1", false},
                                           {"eth0", "fd00::3", false}};

std::vector<std::string> choose(std::string_view selector) {
  auto chosen = select_addresses(kPresent, selector, "alpha");
  EXPECT_TRUE(chosen.is_ok()) << chosen.status().text();
  return chosen ? *chosen : std::vector<std::string>{};
}

TEST(Addresses, DefaultLeavesOutLoopbackAndBridges) {
  EXPECT_THAT(choose(""), ElementsAre("10.1.2.3", "192.168.7.1", "fd00::3"));
  EXPECT_THAT(*select_addresses({{"docker0", "172.17.0.1", false}}, "", "a"),
              ElementsAre("172.17.0.1"));
}

TEST(Addresses, EveryFormOfSelector) {
  EXPECT_THAT(choose("eth1"), ElementsAre("192.168.7.1"));
  EXPECT_THAT(choose("eth1,docker0"), ElementsAre("192.168.7.1", "172.17.0.1"));
  EXPECT_THAT(choose("eth"), ElementsAre("10.1.2.3", "192.168.7.1", "fd00::3"));
  EXPECT_THAT(choose("^eth1,docker0"), ElementsAre("10.1.2.3", "fd00::3"));
  EXPECT_THAT(choose("^nosuch"), ElementsAre("10.1.2.3", "192.168.7.1", "fd00::3"));
  EXPECT_THAT(choose("10.1.2.3"), ElementsAre("10.1.2.3"));
  EXPECT_THAT(choose("192.168.0.0/16,fd00::/64"), ElementsAre("192.168.7.1", "fd00::3"));
  EXPECT_THAT(choose("lo"), ElementsAre("127.0.0.1"));
}

TEST(Addresses, ErrorsNameOptionValueHostAndWhatIsThere) {
  const auto error = [](std::string_view selector) {
    return select_addresses(kPresent, selector, "alpha").status().text();
  };
  EXPECT_THAT(error("wlan0"), ::testing::AllOf(HasSubstr("--network-interfaces 'wlan0'"),
                                               HasSubstr("alpha"), HasSubstr("eth0 10.1.2.3")));
  EXPECT_THAT(error("10.9.0.0/16"), HasSubstr("matches nothing"));
  EXPECT_THAT(error("10.1.2.3/64"), HasSubstr("matches nothing"));
  EXPECT_THAT(error("eth0,"), HasSubstr("matches nothing"));
  EXPECT_THAT(error("^eth0,eth1"), HasSubstr("no address that other hosts could reach"));
  const auto alone = select_addresses({{"lo", "127.0.0.1", true}}, "", "beta");
  EXPECT_THAT(alone.status().text(), HasSubstr("host beta has no address"));
}

}  // namespace
}  // namespace kolo::internal
