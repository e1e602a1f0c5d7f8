// What each rank says for itself in open all-gathers and in all-to-alls with counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/cluster.h"
#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

UnitPtr rows(std::uint64_t count, std::int64_t width = 1) {
  TensorSpec spec = spec_of("x", {static_cast<std::int64_t>(count), width}, DataType::kFloat32,
                            OpKind::kAllgather);
  spec.open = true;
  return share(single(std::move(spec)));
}

UnitPtr blocks(std::vector<std::uint64_t> counts, std::vector<std::uint64_t> expected = {}) {
  TensorSpec spec = spec_of("x", {}, DataType::kFloat32, OpKind::kAlltoall);
  spec.count = 0;
  for (const std::uint64_t count : counts) spec.count += count;
  spec.shape = {static_cast<std::int64_t>(spec.count)};
  spec.counts = std::move(counts);
  spec.receive_counts = std::move(expected);
  return share(single(std::move(spec)));
}

// Three ranks on two hosts.
class Counts : public ::testing::Test {
 protected:
  void submit_all(Ticket ticket, const std::vector<UnitPtr>& units) {
    for (int rank = 0; rank < 3; ++rank) {
      const UnitPtr& unit = units[static_cast<std::size_t>(rank)];
      if (unit == nullptr) continue;
      ASSERT_TRUE(cluster_.submit(rank, ticket, unit).is_ok());
    }
    cluster_.settle();
  }
  void expect_all(Ticket ticket, StatusCode code, const std::string& text) {
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(cluster_[rank].ended[ticket].code(), code);
      EXPECT_THAT(cluster_[rank].ended[ticket].text(), HasSubstr(text));
    }
  }
  const PlannedUnit& last(int rank) { return cluster_[rank].plans.back().units.front(); }

  Cluster cluster_{Topology({0, 0, 1})};
};

TEST_F(Counts, TheOrderBringsThoseOfAllRanksEachTime) {
  for (Ticket ticket = 1; ticket < 4; ++ticket) {
    submit_all(ticket, {rows(ticket), rows(0), rows(7)});
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(last(rank).counts, (OrderCounts{{ticket, 0, 7}}));
      EXPECT_EQ(last(rank).ticket, ticket);
    }
    EXPECT_EQ(last(2).unit->tensors[0].count, 7u) << "each rank's own unit";
  }
  submit_all(9, {blocks({1, 2, 3}), blocks({4, 5, 6}, {2, 5, 8}), blocks({7, 8, 0})});
  EXPECT_EQ(last(1).counts, (OrderCounts{{1, 2, 3, 4, 5, 6, 7, 8, 0}}));
}

TEST_F(Counts, OfAGroupComeInTheOrderOfItsPersonalMembers) {
  std::vector<UnitPtr> units;
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    TensorSpec first = rows(rank)->tensors[0];
    first.name = "a";
    TensorSpec last = rows(10 + rank)->tensors[0];
    last.name = "c";
    units.push_back(group("G", {first, spec_of("b", {4}), last}));
  }
  submit_all(1, units);
  EXPECT_EQ(last(0).counts, (OrderCounts{{0, 1, 2}, {10, 11, 12}}));
}

TEST_F(Counts, WhoExpectsAnotherNumberThanIsSentIsNamed) {
  submit_all(1, {blocks({1, 2, 3}), blocks({4, 5, 6}), blocks({7, 8, 0}, {3, 9, 0})});
  expect_all(1, StatusCode::kMismatch, "rank 2 expects 9 elements of rank 1, which sends it 6");
  submit_all(2, {blocks({1, 2, 3}), blocks({4, 5, 6}), blocks({7, 8, 0})});
  EXPECT_EQ(last(0).ticket, 2u);
}

TEST_F(Counts, SomeWithAndSomeWithoutAreAMismatch) {
  TensorSpec equal = spec_of("x", {2}, DataType::kFloat32, OpKind::kAlltoall);
  submit_all(1, {blocks({1, 2, 3}), share(single(equal)), blocks({7, 8, 0})});
  expect_all(1, StatusCode::kMismatch,
             "counts by rank differs: some on ranks 0, 2; none on rank 1");
}

TEST_F(Counts, OtherDimensionsThanTheFirstMustAgree) {
  submit_all(1, {rows(4, 2), rows(9, 2), rows(1, 3)});
  expect_all(1, StatusCode::kMismatch, "shape differs: (*,2) on ranks 0, 1; (*,3) on rank 2");
}

TEST_F(Counts, SumsThatNoMemoryHoldsAreAnError) {
  constexpr std::uint64_t kMost = PTRDIFF_MAX / 4;
  submit_all(1, {rows(kMost), rows(1), rows(0)});
  expect_all(1, StatusCode::kInvalidArgument, "more than 2^63 bytes");
  submit_all(2, {blocks({0, kMost, 0}), blocks({0, 0, 0}), blocks({0, 1, 0})});
  expect_all(2, StatusCode::kInvalidArgument, "more than 2^63 bytes");
}

TEST_F(Counts, OfAnotherNumberOfRanksAreAnError) {
  submit_all(1, {blocks({1, 2}), blocks({1, 2}), blocks({1, 2})});
  expect_all(1, StatusCode::kInvalidArgument, "2 counts for a process set of 3 ranks");
}

// Numbers by rank are not numbers by place among those that have submitted.
TEST_F(Counts, ALowRankThatHasJoinedWhileAHigherOneHasNotGivesNone) {
  ASSERT_TRUE(cluster_.at(0).join(0));
  cluster_.settle();
  submit_all(1, {nullptr, rows(5), rows(3)});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(last(rank).counts, (OrderCounts{{0, 5, 3}}));
    EXPECT_EQ(last(rank).absent, std::vector<int>{0});
    EXPECT_EQ(last(rank).ticket, rank == 0 ? 0u : 1u);
  }
  submit_all(2, {nullptr, blocks({1, 2, 3}), blocks({4, 5, 6})});
  for (const int rank : {1, 2}) {
    EXPECT_EQ(cluster_[rank].ended[2].code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(cluster_[rank].ended[2].text(),
                AllOf(HasSubstr("rank 0 has joined"), HasSubstr("cannot send blocks")));
  }
}

TEST_F(Counts, AProductWithAPrescaleNeedsAllRanks) {
  ASSERT_TRUE(cluster_.at(0).join(0));
  cluster_.settle();
  Unit product = *allreduce("p");
  product.tensors[0].op = ReduceOp::kProd;
  submit_all(1, {nullptr, share(product), share(product)});
  EXPECT_EQ(last(1).ticket, 1u);
  product.tensors[0].prescale = 0.5;
  product.key.name = product.tensors[0].name = "q";
  submit_all(2, {nullptr, share(product), share(product)});
  EXPECT_EQ(cluster_[2].ended[2].code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(cluster_[2].ended[2].text(), HasSubstr("Use prescale 1"));
}

}  // namespace
}  // namespace kolo::internal
