#include "coordinator/frame.h"

#include <gtest/gtest.h>

#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

Frame through_the_wire(const Frame& frame) {
  Result<Frame> read = decode(encode(frame));
  EXPECT_TRUE(read.is_ok()) << read.status().to_string();
  return read.is_ok() ? *std::move(read) : Frame{};
}

TEST(Frame, ReportsComeThroughUnchanged) {
  Frame frame;
  frame.generation = 7;
  const UnitPtr unit = group("G", {spec_of("a", {2, 3}), spec_of("b", {}, DataType::kBfloat16)});
  frame.facts.push_back({unit, 0, false, {}});
  frame.facts.push_back({nullptr, 12, true, {1, 5}});
  frame.toggles = {{4, true}, {5, false}, {std::uint64_t{1} << 60, true}};
  frame.joined = {{2, 3}};
  frame.expired = {{{1, "late"}, 6}};
  const Frame read = through_the_wire(frame);
  EXPECT_EQ(read.generation, 7u);
  ASSERT_EQ(read.facts.size(), 2u);
  EXPECT_EQ(*read.facts[0].unit, *unit);
  EXPECT_EQ(read.facts[1].unit, nullptr);
  EXPECT_EQ(read.facts[1].id, 12u);
  EXPECT_TRUE(read.facts[1].parity);
  EXPECT_EQ(read.facts[1].ranks, (std::vector<int>{1, 5}));
  EXPECT_EQ(read.toggles, frame.toggles);
  EXPECT_EQ(read.joined.at(0).rank, 3);
  EXPECT_EQ(read.expired.at(0).key, (UnitKey{1, "late"}));
}

TEST(Frame, OrdersComeThroughUnchanged) {
  Frame frame;
  RunItem run;
  run.units.push_back({2, allreduce("seen"), false, {}});
  run.units.push_back({4, allreduce("new"), true, {3}});
  run.units.push_back({0, allreduce("uncached"), false, {}});
  run.cuts = {{0, 2}, {1}};
  frame.items.emplace_back(run);
  frame.items.emplace_back(failure_of({0, "f"}, {0, 1}, timed_out("late")));
  frame.items.emplace_back(Evict{2});
  frame.items.emplace_back(JoinDone{1, 2});
  const Frame read = through_the_wire(frame);
  ASSERT_EQ(read.items.size(), 4u);
  const RunItem& got = std::get<RunItem>(read.items[0]);
  EXPECT_EQ(got.units[0].unit, nullptr) << "a known unit goes by its id only";
  EXPECT_EQ(*got.units[1].unit, *allreduce("new"));
  EXPECT_TRUE(got.units[1].first_sight);
  EXPECT_EQ(got.units[1].absent, std::vector<int>{3});
  EXPECT_EQ(*got.units[2].unit, *allreduce("uncached"));
  EXPECT_EQ(got.cuts, run.cuts);
  EXPECT_EQ(std::get<Failure>(read.items[1]).status, timed_out("late"));
  EXPECT_EQ(std::get<Evict>(read.items[2]).id, 2u);
  EXPECT_EQ(std::get<JoinDone>(read.items[3]).last_rank, 2);
}

TEST(Frame, CountsAndProcessSetsComeThroughUnchanged) {
  TensorSpec sent = spec_of("x", {6}, DataType::kFloat32, OpKind::kAlltoall);
  sent.counts = {1, 5};
  sent.receive_counts = {0, std::uint64_t{1} << 40};
  TensorSpec open = spec_of("o", {3}, DataType::kInt8, OpKind::kAllgather);
  open.open = true;
  const TensorSpec made = spec_of("#pset:a", {0, 7, 9}, DataType::kFloat32, OpKind::kCreateSet);
  Frame frame;
  for (const TensorSpec& spec : {sent, open, made}) {
    frame.facts.push_back({share(single(spec)), 0, false, {}});
  }
  UnitOrder order{0, share(single(made)), false, {}};
  order.new_set = 8;
  order.counts = {{1, 2}, {}, {std::uint64_t{1} << 40}};
  frame.items.emplace_back(RunItem{{order}, {}});
  const Frame read = through_the_wire(frame);
  ASSERT_EQ(read.facts.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(*read.facts[i].unit, *frame.facts[i].unit);
  const UnitOrder& got = std::get<RunItem>(read.items.at(0)).units.at(0);
  EXPECT_EQ(got.new_set, 8u);
  EXPECT_EQ(got.counts, order.counts);
}

TEST(Frame, CountsAndProcessSetsThatCannotBeAreRefused) {
  const auto refused = [](const TensorSpec& spec, std::uint32_t set = 0) {
    Frame frame;
    frame.facts.push_back({share(single(spec, set)), 0, false, {}});
    return !decode(encode(frame)).is_ok();
  };
  TensorSpec spec = spec_of("x", {4});
  spec.counts = {2, 2};
  EXPECT_TRUE(refused(spec)) << "an all-reduce with counts";
  spec.kind = OpKind::kReduceScatter;
  EXPECT_FALSE(refused(spec));
  spec.receive_counts = {2, 2};
  EXPECT_TRUE(refused(spec)) << "it receives nothing by rank";
  spec.receive_counts.clear();
  spec.counts = {PTRDIFF_MAX / 4, 1};
  EXPECT_TRUE(refused(spec)) << "more than memory holds";
  spec.counts.clear();
  spec.open = true;
  EXPECT_TRUE(refused(spec)) << "only an all-gather is open";
  const auto change = [](OpKind kind, std::vector<std::int64_t> shape) {
    TensorSpec of_set = spec_of("#s:1", {1}, DataType::kFloat32, kind);
    of_set.shape = std::move(shape);
    return of_set;
  };
  EXPECT_FALSE(refused(change(OpKind::kCreateSet, {0, 2})));
  EXPECT_TRUE(refused(change(OpKind::kCreateSet, {0, 2}), 1)) << "not of the world";
  EXPECT_TRUE(refused(change(OpKind::kCreateSet, {})));
  EXPECT_TRUE(refused(change(OpKind::kCreateSet, {2, 2})));
  EXPECT_TRUE(refused(change(OpKind::kCreateSet, {-1, 2})));
  EXPECT_TRUE(refused(change(OpKind::kCreateSet, {0, std::int64_t{1} << 40})));
  EXPECT_FALSE(refused(change(OpKind::kDestroySet, {3})));
  EXPECT_TRUE(refused(change(OpKind::kDestroySet, {3, 4})));
  EXPECT_TRUE(refused(change(OpKind::kDestroySet, {std::int64_t{1} << 32})));
  Frame frame;
  frame.facts.push_back({group("G", {change(OpKind::kDestroySet, {3})}), 0, false, {}});
  EXPECT_FALSE(decode(encode(frame)).is_ok()) << "in a group";
}

TEST(Frame, NoticesComeThroughUnchanged) {
  Frame frame;
  frame.notices.push_back({Notice::Kind::kGoodbye, 2, "", {{0, 17}, {3, 0}}});
  frame.notices.push_back({Notice::Kind::kLost, 1, "closed", {}});
  const Frame read = through_the_wire(frame);
  EXPECT_EQ(read.notices.at(0).through, frame.notices[0].through);
  EXPECT_EQ(read.notices.at(1).kind, Notice::Kind::kLost);
  EXPECT_EQ(read.notices.at(1).text, "closed");
}

TEST(Frame, ARefusedUnitMayHoldAnyNumbers) {
  TensorSpec odd = spec_of("x", {1});
  odd.dtype = static_cast<DataType>(99);
  odd.op = static_cast<ReduceOp>(-3);
  odd.count = ~std::uint64_t{0};
  odd.shape.assign(100, -1);
  Unit unit = single(odd);
  Frame frame;
  frame.facts.push_back({share(unit), 0, false, {}});
  EXPECT_FALSE(decode(encode(frame)).is_ok());
  unit.invalid = "unknown dtype 99";
  frame.facts[0].unit = share(unit);
  EXPECT_EQ(*through_the_wire(frame).facts.at(0).unit, unit);
}

TEST(Frame, MalformedOnesAreRefused) {
  const auto refused = [](const Frame& frame) {
    const Result<Frame> read = decode(encode(frame));
    return !read.is_ok() && read.status().code() == StatusCode::kInvalidArgument;
  };
  Frame frame;
  frame.facts.push_back({nullptr, 0, false, {}});
  EXPECT_TRUE(refused(frame)) << "a fact about nothing";
  frame = {};
  frame.facts.push_back({share(Unit{}), 0, false, {}});
  EXPECT_TRUE(refused(frame)) << "a unit without tensor";
  Unit two = single(spec_of("x", {1}));
  two.tensors.push_back(spec_of("y", {1}));
  frame.facts[0].unit = share(two);
  EXPECT_TRUE(refused(frame)) << "two tensors that are no group";
  Unit nameless = single(spec_of("", {1}));
  nameless.numbered = true;
  frame.facts[0].unit = share(nameless);
  EXPECT_TRUE(refused(frame)) << "a numbered unit without number";
  frame = {};
  frame.facts.push_back({allreduce("x"), 0, false, {1 << 25}});
  EXPECT_TRUE(refused(frame)) << "a rank out of range";
  frame = {};
  frame.items.assign(1, failure_of({0, "f"}, {0}, Status::ok()));
  EXPECT_TRUE(refused(frame)) << "a failure that is none";
  frame.items.assign(1, failure_of({0, "f"}, {0}, {static_cast<StatusCode>(77), "x"}));
  EXPECT_TRUE(refused(frame)) << "an unknown status";
  frame = {};
  frame.notices.push_back({static_cast<Notice::Kind>(9), 0, "", {}});
  EXPECT_TRUE(refused(frame)) << "an unknown notice";
}

TEST(Frame, EveryPrefixAndEveryFlippedBitIsReadOrRefused) {
  Frame frame;
  frame.facts.push_back({group("G", {spec_of("a", {2}), spec_of("b", {3})}), 0, false, {0}});
  frame.items.emplace_back(failure_of({0, "f"}, {0, 1}, timed_out("late")));
  frame.items.emplace_back(Evict{2});
  const std::string bytes = encode(frame);
  std::size_t refused = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    refused += decode(std::string_view(bytes).substr(0, size)).is_ok() ? 0 : 1;
  }
  EXPECT_GT(refused, bytes.size() / 2);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    const Result<Frame> read = decode(changed);
    if (!read) {
      EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace kolo::internal
