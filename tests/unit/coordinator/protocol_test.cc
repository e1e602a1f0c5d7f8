// What a peer may not send: the negotiator answers with a Status and goes no further.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/negotiator.h"
#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using ::testing::HasSubstr;

// Hosts: {0, 1}, {2, 3}; process set 1 is host 1's, 2 crosses without rank 3.
class ProtocolTest : public ::testing::Test {
 protected:
  ProtocolTest() {
    topology_.add_process_set(1, {2, 3});
    topology_.add_process_set(2, {0, 2});
  }
  void expect_refused(int to, int from, const Frame& frame, const char* text) {
    Negotiator negotiator(topology_, to, 0, {});
    const Status status = negotiator.receive(from, encode(frame), 0ns);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << text;
    EXPECT_THAT(status.text(), HasSubstr(text));
  }
  static Frame fact(const UnitPtr& unit, std::vector<int> ranks) {
    Frame frame;
    frame.facts.push_back({unit, 0, false, std::move(ranks)});
    return frame;
  }
  static Frame item(Item one) {
    Frame frame;
    frame.items.push_back(std::move(one));
    return frame;
  }

  Topology topology_{{0, 0, 1, 1}};
};

TEST_F(ProtocolTest, ReportsGoUpOnly) {
  for (const auto& [to, from] : std::vector<std::pair<int, int>>{{3, 2}, {2, 0}, {1, 0}, {2, 1}}) {
    expect_refused(to, from, fact(allreduce("a"), {from}), "a report to the wrong rank");
  }
  expect_refused(0, 3, fact(allreduce("a"), {3}), "a report to the wrong rank");
}

TEST_F(ProtocolTest, OrdersComeFromAboveOnly) {
  for (const auto& [to, from] : std::vector<std::pair<int, int>>{{0, 1}, {0, 2}, {2, 3}, {3, 0}}) {
    expect_refused(to, from, item(Evict{2}), "an order from the wrong rank");
  }
}

TEST_F(ProtocolTest, AMemberSpeaksOfItself) {
  expect_refused(2, 3, fact(allreduce("a"), {2}), "outside of the process set");
  expect_refused(2, 3, fact(allreduce("a", 2), {}), "outside of the process set");
  expect_refused(2, 3, fact(allreduce("a", 9), {}), "outside of the process set");
  Frame frame;
  frame.facts.push_back({nullptr, 2, false, {}});
  expect_refused(2, 3, frame, "a fact without unit");
  frame = {};
  frame.joined = {{0, 2}};
  expect_refused(2, 3, frame, "a join outside");
  frame = {};
  frame.toggles = {{2, true}};
  expect_refused(2, 3, frame, "unknown id 2");
}

TEST_F(ProtocolTest, ALeaderSpeaksOfItsHost) {
  expect_refused(0, 2, fact(allreduce("a"), {1}), "outside of the process set");
  expect_refused(0, 2, fact(allreduce("a"), {1000}), "outside of the process set");
  expect_refused(0, 2, fact(allreduce("a"), {}), "a fact of no rank");
  expect_refused(0, 2, fact(allreduce("a", 1), {2}), "outside of the process set");
  Frame frame;
  frame.facts.push_back({nullptr, 2, false, {7}});
  expect_refused(0, 2, frame, "outside of the process set");
  frame.facts[0].ranks = {2};
  expect_refused(0, 2, frame, "unknown id 2");
}

TEST_F(ProtocolTest, TheRootOrdersWhatCrossesHostsOnly) {
  RunItem run;
  run.units.push_back({0, allreduce("a", 1), false, {}});
  expect_refused(2, 0, item(run), "an order of the root about one host");
  run.units[0] = {3, allreduce("a"), true, {}};
  expect_refused(2, 0, item(run), "an order of the root about one host");
  expect_refused(2, 0, item(Evict{3}), "an order of the root about one host");
  expect_refused(2, 0, item(JoinDone{1, 2}), "an order of the root about one host");
  expect_refused(2, 0, item(failure_of({7, "a"}, {2}, timed_out("x"))), "about one host");
}

TEST_F(ProtocolTest, RanksOutsideOfTheJob) {
  Frame frame;
  frame.notices.push_back({Notice::Kind::kLost, 4, "x", {}});
  expect_refused(1, 0, frame, "a rank outside of the job");
}

}  // namespace
}  // namespace kolo::internal
