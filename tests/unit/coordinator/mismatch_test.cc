#include "coordinator/mismatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

PendingUnit pending(std::vector<std::pair<UnitPtr, std::vector<int>>> variants) {
  PendingUnit unit;
  for (auto& [meant, ranks] : variants) unit.variants.push_back({meant, 0, ranks});
  return unit;
}

template <typename Matcher>
void expect_mismatch(const PendingUnit& unit, const Matcher& matcher) {
  const Status status = check_agreement(unit);
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_THAT(status.text(), matcher);
}

TensorSpec broadcast(std::int32_t root) {
  TensorSpec spec = spec_of("b", {2}, DataType::kFloat32, OpKind::kBroadcast);
  spec.root = root;
  return spec;
}

TEST(Mismatch, AgreementIsOk) {
  EXPECT_TRUE(check_agreement(pending({{allreduce("g"), {0, 1}}})).is_ok());
}

TEST(Mismatch, S01NamesBothShapes) {
  expect_mismatch(
      pending({{share(single(spec_of("g", {100, 2560}))), {0}},
               {share(single(spec_of("g", {200, 2560}))), {1}}}),
      AllOf(HasSubstr("'g'"), HasSubstr("shape differs"), HasSubstr("(100,2560) on rank 0"),
            HasSubstr("(200,2560) on rank 1"), HasSubstr("no buffer was changed")));
}

TEST(Mismatch, S02NamesBothDtypes) {
  expect_mismatch(pending({{share(single(spec_of("x", {1}))), {1, 2}},
                           {share(single(spec_of("x", {1}, DataType::kBfloat16))), {0}}}),
                  HasSubstr("dtype differs: bf16 on rank 0; f32 on ranks 1, 2"));
}

TEST(Mismatch, S03NamesThreeKinds) {
  expect_mismatch(
      pending({{share(single(spec_of("t", {25}))), {0}},
               {share(single(spec_of("t", {25}, DataType::kFloat32, OpKind::kAllgather))), {1}},
               {share(single(spec_of("t", {25}, DataType::kFloat32, OpKind::kBroadcast))), {2}}}),
      HasSubstr("operation differs: allreduce on rank 0; allgather on rank 1; "
                "broadcast on rank 2"));
}

TEST(Mismatch, S06GroupsOfOtherMembersOrDtypes) {
  const TensorSpec a = spec_of("a", {3});
  const TensorSpec b = spec_of("b", {5});
  const TensorSpec c = spec_of("c", {2});
  expect_mismatch(pending({{group("G", {a, b, c}), {0}}, {group("G", {a, b}), {1}}}),
                  AllOf(HasSubstr("'G'"), HasSubstr("3 members a, b, c on rank 0"),
                        HasSubstr("2 members a, b on rank 1")));
  expect_mismatch(pending({{group("G", {a, b, c}), {0}},
                           {group("G", {a, spec_of("b", {5}, DataType::kInt32), c}), {1}}}),
                  HasSubstr("member 'b': dtype differs: f32 on rank 0; i32 on rank 1"));
}

TEST(Mismatch, AMemberBeyondTheNamesShown) {
  std::vector<TensorSpec> mine;
  for (int i = 0; i < 12; ++i) mine.push_back(spec_of("m" + std::to_string(i), {1}));
  std::vector<TensorSpec> other = mine;
  other[11].name = "zz";
  expect_mismatch(pending({{group("G", mine), {0}}, {group("G", other), {1}}}),
                  HasSubstr("'m11' on rank 0; 'zz' on rank 1 as member 12"));
}

TEST(Mismatch, S20NamesBothRoots) {
  expect_mismatch(pending({{share(single(broadcast(0))), {0}}, {share(single(broadcast(1))), {1}}}),
                  HasSubstr("root differs: 0 on rank 0; 1 on rank 1"));
  Unit refused = single(broadcast(2));
  refused.invalid = "root 2 is not a rank of 0..1";
  expect_mismatch(pending({{share(refused), {0}}, {share(single(broadcast(0))), {1}}}),
                  AllOf(HasSubstr("rank 0 refused it (root 2 is not a rank of 0..1)"),
                        HasSubstr("root differs: 2 on rank 0; 0 on rank 1")));
}

TEST(Mismatch, UnevenRowsAreToldWhatTheyNeed) {
  const auto rows = [](std::int64_t count, OpKind kind) {
    return share(single(spec_of("r", {count}, DataType::kFloat32, kind)));
  };
  expect_mismatch(
      pending({{rows(2, OpKind::kAllgather), {0}}, {rows(3, OpKind::kAllgather), {1}}}),
      AllOf(HasSubstr("(2) on rank 0; (3) on rank 1"), HasSubstr("need recv_counts, or allocate")));
  expect_mismatch(pending({{rows(2, OpKind::kAlltoall), {0}}, {rows(3, OpKind::kAlltoall), {1}}}),
                  HasSubstr("need send_counts"));
  expect_mismatch(pending({{rows(2, OpKind::kAllgather), {0}}, {allreduce("r"), {1}}}),
                  HasSubstr("Submit the same on every rank"));
}

TEST(Mismatch, WithoutNamesInAnotherOrder) {
  Unit mine = single(spec_of("#3", {4}));
  Unit other = single(spec_of("#3", {4}, DataType::kFloat32, OpKind::kAllgather));
  mine.numbered = other.numbered = true;
  expect_mismatch(pending({{share(mine), {0}}, {share(other), {1}}}),
                  AllOf(HasSubstr("operation number 3"),
                        HasSubstr("operation differs: allreduce on rank 0; allgather on rank 1"),
                        HasSubstr("in one order on every rank, or name them")));
}

TEST(Mismatch, ScalesThatLookAlikeStillDiffer) {
  Unit other = *allreduce("g");
  other.tensors[0].prescale = 1.0000000000000002;
  expect_mismatch(pending({{allreduce("g"), {0}}, {share(other), {1}}}),
                  AllOf(HasSubstr("prescale/postscale differs: 1/1 on rank 0"),
                        HasSubstr("1.0000000000000002/1 on rank 1")));
}

TEST(Mismatch, AbsentRanksCannotGiveRowsOrBeTheRoot) {
  EXPECT_TRUE(check_absent(*allreduce("g"), {1}).is_ok());
  EXPECT_TRUE(check_absent(single(broadcast(0)), {1}).is_ok());
  const Status rows =
      check_absent(single(spec_of("r", {2}, DataType::kFloat32, OpKind::kAllgather)), {1, 2});
  EXPECT_EQ(rows.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(rows.text(), HasSubstr("ranks 1, 2 have joined"));
  EXPECT_THAT(check_absent(single(broadcast(1)), {1}).text(), HasSubstr("its root, rank 1"));
}

}  // namespace
}  // namespace kolo::internal
