// Small tensors whose bytes travel with the word of their readiness.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/coordinator/cluster.h"
#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kCount = 2;
// Two float32, as allreduce(name, set, kCount) has them.
std::string bytes_of(char letter) { return std::string(8, letter); }

TEST(PayloadBook, GivesThemInTheOrderOfTheRanksOnceAllAreThere) {
  PayloadBook book;
  book.add({2, true, 1, "b"});
  EXPECT_EQ(book.take(4, {1}), std::nullopt) << "another id";
  book.add({2, true, 0, "a"});
  book.add({2, true, 0, "A"});  // heard again
  EXPECT_THAT(book.take(2, {0, 1}).value(), ElementsAre("A", "b"));
  EXPECT_EQ(book.take(2, {0, 1}), std::nullopt) << "each is for one round";
}

TEST(PayloadBook, AnIncompleteRoundTakesItsPayloadsAlong) {
  PayloadBook book;
  book.add({2, true, 0, "a"});
  EXPECT_EQ(book.take(2, {0, 1}), std::nullopt);
  book.add({2, false, 1, "b"});
  EXPECT_EQ(book.take(2, {0, 1}), std::nullopt) << "rank 0's belonged to the round before";
  book.add({2, true, 0, "a"});
  book.add({2, true, 1, "b"});
  book.forget(2);
  EXPECT_EQ(book.take(2, {0, 1}), std::nullopt);
}

// Ranks 0 and 1 on one host; unit 'a', of two bytes, has the id 2 and has been ordered once.
UnitPtr two_bytes(const char* name) { return share(single(spec_of(name, {2}, DataType::kInt8))); }
class SequencerPayloads : public ::testing::Test {
 protected:
  SequencerPayloads() {
    sequencer_.add(kBoth, two_bytes("a"), 0ns);
    EXPECT_EQ(run_of(sequencer_.drain(Nanos(0))).units.at(0).id, 2u);
  }
  static RunItem run_of(const std::vector<Item>& items) {
    for (const Item& item : items) {
      if (const auto* run = std::get_if<RunItem>(&item)) return *run;
    }
    ADD_FAILURE() << "no run";
    return {};
  }
  void add(Payload payload) { EXPECT_TRUE(sequencer_.add_payload(std::move(payload)).is_ok()); }
  // One more round: what its order carries.
  std::vector<std::string> round(const std::vector<std::optional<std::string>>& payloads) {
    const bool parity = ++rounds_ % 2 != 0;  // the first order's was `true`
    for (int rank = 0; rank < 2; ++rank) {
      const auto& bytes = payloads[static_cast<std::size_t>(rank)];
      if (bytes) add({2, parity, rank, *bytes});
      const int self[] = {rank};
      EXPECT_TRUE(sequencer_.add_toggle(self, {2, parity}, 0ns).is_ok());
    }
    return run_of(sequencer_.drain(Nanos(0))).units.at(0).payloads;
  }

  static constexpr int kBoth[] = {0, 1};
  Topology topology_{{0, 0}};
  Sequencer sequencer_{topology_, {}, false};
  int rounds_ = 1;
};

TEST_F(SequencerPayloads, TheOrderCarriesThemWhenAllAreThere) {
  EXPECT_THAT(round({"a0", "a1"}), ElementsAre("a0", "a1"));
  EXPECT_THAT(round({"b0", "b1"}), ElementsAre("b0", "b1"));
}

TEST_F(SequencerPayloads, OneWithoutIsTheOrdinaryRoad) {
  EXPECT_THAT(round({"a0", std::nullopt}), IsEmpty());
  EXPECT_THAT(round({std::nullopt, std::nullopt}), IsEmpty());
}

TEST_F(SequencerPayloads, AreNotKeptForALaterRoundOfTheSameParity) {
  EXPECT_THAT(round({"a0", std::nullopt}), IsEmpty());
  EXPECT_THAT(round({std::nullopt, "b1"}), IsEmpty());
  EXPECT_THAT(round({std::nullopt, "c1"}), IsEmpty()) << "a0 is two rounds old";
}

TEST_F(SequencerPayloads, HeardAgainAfterTheirOrderAreStale) {
  EXPECT_THAT(round({"a0", "a1"}), ElementsAre("a0", "a1"));
  add({2, false, 0, "a0"});
  EXPECT_THAT(round({std::nullopt, "b1"}), IsEmpty());
  EXPECT_THAT(round({std::nullopt, "c1"}), IsEmpty());
}

TEST_F(SequencerPayloads, OfUnknownIdsAndForeignRanksAreDropped) {
  add({4, false, 0, "x"});
  add({2, false, 2, "xx"});
  EXPECT_THAT(round({"a0", "a1"}), ElementsAre("a0", "a1"));
}

TEST_F(SequencerPayloads, OfAnotherSizeAreRefused) {
  for (const char* bytes : {"", "1", "123"}) {
    const Status status = sequencer_.add_payload({2, false, 0, bytes});
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(status.text(), HasSubstr("payload"));
  }
  EXPECT_THAT(round({std::nullopt, "a1"}), IsEmpty());
}

TEST_F(SequencerPayloads, OnlyTheRootOfABroadcastGivesBytes) {
  TensorSpec spec = spec_of("bc", {2}, DataType::kInt8, OpKind::kBroadcast);
  spec.root = 1;
  sequencer_.add(kBoth, share(single(spec)), 0ns);
  EXPECT_EQ(run_of(sequencer_.drain(Nanos(0))).units.at(0).id, 4u);
  EXPECT_FALSE(sequencer_.add_payload({4, false, 0, "no"}).is_ok());
  EXPECT_FALSE(sequencer_.add_payload({4, false, 1, ""}).is_ok());
  add({4, false, 0, ""});
  add({4, false, 1, "r1"});
  ASSERT_TRUE(sequencer_.add_toggle(kBoth, {4, false}, 0ns).is_ok());
  EXPECT_THAT(run_of(sequencer_.drain(Nanos(0))).units.at(0).payloads, ElementsAre("", "r1"));
}

TEST_F(SequencerPayloads, AnEvictionForgetsThem) {
  const int zero[] = {0};
  add({2, false, 0, "a0"});
  ASSERT_TRUE(sequencer_.add_toggle(zero, {2, false}, 0ns).is_ok());
  sequencer_.expire({0, "a"}, 0, Nanos(0));
  EXPECT_THAT(sequencer_.drain(Nanos(0)), testing::SizeIs(2)) << "an eviction and a failure";
  add({2, false, 0, "a0"});
  const int one[] = {1};
  sequencer_.add(one, two_bytes("a"), 0ns);  // the late one, which fails
  sequencer_.add(kBoth, two_bytes("a"), 0ns);
  const RunItem run = run_of(sequencer_.drain(Nanos(0)));
  EXPECT_EQ(run.units.at(0).id, 4u);
  EXPECT_THAT(run.units.at(0).payloads, IsEmpty());
}

TEST_F(SequencerPayloads, AnAbsentRankIsTheOrdinaryRoad) {
  const int zero[] = {0};
  add({2, false, 1, "ol"});  // whose toggle never came
  sequencer_.add_joined(0, 1, Nanos(0));
  add({2, false, 0, "a0"});
  ASSERT_TRUE(sequencer_.add_toggle(zero, {2, false}, 0ns).is_ok());
  const RunItem run = run_of(sequencer_.drain(Nanos(0)));
  EXPECT_THAT(run.units.at(0).absent, ElementsAre(1));
  EXPECT_THAT(run.units.at(0).payloads, IsEmpty());
}

TEST_F(SequencerPayloads, AUnitWithPayloadsIsFusedWithNothing) {
  for (const char* name : {"b", "c"}) sequencer_.add(kBoth, two_bytes(name), 0ns);
  EXPECT_EQ(run_of(sequencer_.drain(Nanos(0))).cuts.size(), 1u);
  for (int rank = 0; rank < 2; ++rank) add({2, false, rank, "xx"});
  for (const std::uint64_t id : {2, 4, 6}) {
    ASSERT_TRUE(sequencer_.add_toggle(kBoth, {id, false}, 0ns).is_ok());
  }
  EXPECT_THAT(run_of(sequencer_.drain(Nanos(0))).cuts,
              ElementsAre(ElementsAre(0u), ElementsAre(1u, 2u)));
}

// ---- members

class MemberPayloads : public ::testing::Test {
 protected:
  MemberPayloads() {
    EXPECT_TRUE(member_.submit(1, unit_, kNever, bytes_of('x')).is_ok());
    const Frame report = member_.take_report();
    EXPECT_EQ(report.facts.size(), 1u);
    EXPECT_THAT(report.payloads, IsEmpty()) << "nothing is cached yet";
    EXPECT_TRUE(apply({2, unit_, true, {}}).is_ok());
    EXPECT_TRUE(member_.submit(2, unit_, kNever, bytes_of('b')).is_ok());
  }
  Status apply(UnitOrder order) {
    RunItem run;
    run.units.push_back(std::move(order));
    plan_.reset();
    std::vector<Finished> finished;
    return member_.apply(run, plan_, finished);
  }

  Topology topology_{{0, 0}};
  Member member_{topology_, 1};
  UnitPtr unit_ = allreduce("a", 0, kCount);
  std::optional<Plan> plan_;
};

TEST_F(MemberPayloads, GoWithTheToggle) {
  const Frame report = member_.take_report();
  EXPECT_THAT(report.toggles, ElementsAre(Toggle{2, false}));
  ASSERT_EQ(report.payloads.size(), 1u);
  EXPECT_EQ(report.payloads[0].id, 2u);
  EXPECT_FALSE(report.payloads[0].parity);
  EXPECT_EQ(report.payloads[0].rank, 1);
  EXPECT_EQ(report.payloads[0].bytes, bytes_of('b'));
  ASSERT_TRUE(apply({2, nullptr, false, {}, {bytes_of('a'), bytes_of('b')}}).is_ok());
  EXPECT_THAT(plan_->units.at(0).payloads, ElementsAre(bytes_of('a'), bytes_of('b')));
  EXPECT_EQ(plan_->units.at(0).ticket, 2u);
}

TEST_F(MemberPayloads, OrdersWhosePayloadsDoNotFitAreRefused) {
  const std::string good = bytes_of('a');
  for (const std::vector<std::string>& payloads : std::vector<std::vector<std::string>>{
           {good}, {good, good, good}, {good, ""}, {good, "short"}, {good + "x", good}}) {
    Member member = member_;
    RunItem run;
    run.units.push_back({2, nullptr, false, {}, payloads});
    std::vector<Finished> finished;
    const Status status = member.apply(run, plan_, finished);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(status.text(), HasSubstr("payload"));
  }
  EXPECT_EQ(apply({2, nullptr, false, {0}, {good, good}}).code(), StatusCode::kInternal)
      << "an absent rank gives no bytes";
}

TEST_F(MemberPayloads, OnlyTheRootOfABroadcastGivesBytes) {
  TensorSpec spec = spec_of("bc", {kCount}, DataType::kFloat32, OpKind::kBroadcast);
  spec.root = 1;
  const UnitPtr broadcast = share(single(spec));
  for (const auto& [payloads, fits] : std::vector<std::pair<std::vector<std::string>, bool>>{
           {{"", bytes_of('r')}, true}, {{bytes_of('r'), ""}, false}, {{"", ""}, false}}) {
    Member member = member_;
    ASSERT_TRUE(member.submit(3, broadcast, kNever).is_ok());
    RunItem run;
    run.units.push_back({4, broadcast, true, {}, payloads});
    std::vector<Finished> finished;
    EXPECT_EQ(member.apply(run, plan_, finished).is_ok(), fits);
  }
}

TEST_F(MemberPayloads, AGroupHasNone) {
  const UnitPtr one = group("G", {spec_of("m", {kCount})});
  ASSERT_TRUE(member_.submit(3, one, kNever).is_ok());
  EXPECT_EQ(apply({4, one, true, {}, {bytes_of('a'), bytes_of('b')}}).code(),
            StatusCode::kInternal);
}

// ---- whole negotiations: ranks 0, 1 on host 0; 2, 3 on host 1, whose set is 1

Topology two_hosts() {
  Topology topology({0, 0, 1, 1});
  topology.add_process_set(1, {2, 3});
  return topology;
}

TEST(Payloads, CrossHostsBeforeTheToggleAndComeBackWithTheOrder) {
  Cluster cluster(two_hosts());
  const UnitPtr unit = allreduce("a", 0, kCount);
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(cluster.submit(rank, 1, unit).is_ok());
  cluster.settle();
  cluster.hold(2, 0);
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(
        cluster.submit(rank, 2, unit, kNever, bytes_of(static_cast<char>('a' + rank))).is_ok());
  }
  cluster.settle();
  std::vector<int> before;  // payloads, until the toggle of host 1
  bool toggled = false;
  for (const std::string& bytes : cluster.link(2, 0)) {
    const Result<Frame> frame = decode(bytes);
    ASSERT_TRUE(frame.is_ok());
    EXPECT_FALSE(toggled);
    for (const Payload& payload : frame->payloads) before.push_back(payload.rank);
    toggled = toggled || !frame->toggles.empty();
  }
  EXPECT_TRUE(toggled);
  std::sort(before.begin(), before.end());
  EXPECT_THAT(before, ElementsAre(2, 3));
  cluster.release();
  cluster.settle();
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(cluster[rank].plans.size(), 2u);
    EXPECT_THAT(cluster[rank].plans[1].units.at(0).payloads,
                ElementsAre(bytes_of('a'), bytes_of('b'), bytes_of('c'), bytes_of('d')));
  }
}

TEST(Payloads, OfASetOfOneHostStayThere) {
  Cluster cluster(two_hosts());
  const UnitPtr unit = allreduce("a", 1, kCount);
  for (const int rank : {2, 3}) ASSERT_TRUE(cluster.submit(rank, 1, unit).is_ok());
  cluster.settle();
  for (const int rank : {2, 3}) {
    ASSERT_TRUE(cluster.submit(rank, 2, unit, kNever, bytes_of('h')).is_ok());
  }
  cluster.settle();
  EXPECT_EQ(cluster.frames_sent(2, 0), 0u);
  for (const int rank : {2, 3}) {
    EXPECT_THAT(cluster[rank].plans.at(1).units.at(0).payloads,
                ElementsAre(bytes_of('h'), bytes_of('h')));
  }
}

TEST(Payloads, ALeaderSpeaksOfItsHostOnly) {
  for (const auto& [from, rank] : std::vector<std::pair<int, int>>{{2, 1}, {2, 1000}, {1, 0}}) {
    Frame frame;
    frame.payloads.push_back({2, true, rank, "x"});
    Negotiator root(two_hosts(), 0, 0, {});
    const Status status = root.receive(from, encode(frame), 0ns);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(status.text(), HasSubstr("a payload of another rank"));
  }
}

TEST(Payloads, ThatDoNotFitEndTheContextWithAStatus) {
  for (const std::uint32_t set : {0U, 1U}) {
    for (const int from : {2, 3}) {  // the leader and a member of host 1
      Cluster cluster(two_hosts());
      const UnitPtr unit = allreduce("a", set, kCount);
      for (int rank = set == 0 ? 0 : 2; rank < 4; ++rank) {
        ASSERT_TRUE(cluster.submit(rank, 1, unit).is_ok());
      }
      cluster.settle();
      if (set == 1 && from == 2) continue;  // its own sequencer: no peer
      Frame frame;
      frame.generation = 1;
      frame.payloads.push_back({set == 0 ? 2U : 3U, false, from, "other"});
      const int to = from == 2 ? 0 : 2;
      EXPECT_EQ(cluster.at(to).receive(from, encode(frame), 0ns).code(), StatusCode::kInternal);
    }
  }
}

// ---- the codec

TEST(Payloads, ComeThroughTheWireUnchanged) {
  Frame frame;
  const std::string longest(kPayloadBytesMax, '\0');
  frame.payloads = {{std::uint64_t{1} << 60, true, 3, longest}, {5, false, 0, ""}};
  RunItem run;
  run.units.push_back({2, allreduce("a"), true, {}, {longest, "", "x"}});
  frame.items.emplace_back(run);
  EXPECT_FALSE(frame.empty());
  const Result<Frame> read = decode(encode(frame));
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  ASSERT_EQ(read->payloads.size(), 2u);
  EXPECT_EQ(read->payloads[0].id, std::uint64_t{1} << 60);
  EXPECT_TRUE(read->payloads[0].parity);
  EXPECT_EQ(read->payloads[0].rank, 3);
  EXPECT_EQ(read->payloads[0].bytes, longest);
  EXPECT_EQ(read->payloads[1].bytes, "");
  EXPECT_FALSE(read->payloads[1].parity);
  EXPECT_THAT(std::get<RunItem>(read->items.at(0)).units.at(0).payloads,
              ElementsAre(longest, "", "x"));
}

TEST(Payloads, TooLongOrOfARankOutOfRangeAreRefused) {
  const auto code = [](const Frame& frame) { return decode(encode(frame)).status().code(); };
  Frame frame;
  frame.payloads = {{2, true, 0, std::string(kPayloadBytesMax + 1, 'x')}};
  EXPECT_EQ(code(frame), StatusCode::kInvalidArgument);
  frame.payloads = {{2, true, 1 << 20, "x"}};
  EXPECT_EQ(code(frame), StatusCode::kInvalidArgument);
  frame = {};
  RunItem run;
  run.units.push_back({2, nullptr, false, {}, {std::string(kPayloadBytesMax + 1, 'x')}});
  frame.items.emplace_back(run);
  EXPECT_EQ(code(frame), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kolo::internal
