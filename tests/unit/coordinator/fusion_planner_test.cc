#include "coordinator/fusion_planner.h"

#include <gtest/gtest.h>

#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using Cuts = std::vector<std::vector<std::uint32_t>>;

UnitOrder order(const UnitPtr& unit, std::vector<int> absent = {}) {
  return {0, unit, false, std::move(absent)};
}
UnitPtr typed(const std::string& name, DataType dtype, std::int64_t count = 4) {
  return share(single(spec_of(name, {count}, dtype)));
}
UnitPtr with_op(const std::string& name, ReduceOp op) {
  Unit unit = *allreduce(name);
  unit.tensors[0].op = op;
  return share(unit);
}
UnitPtr of_kind(const std::string& name, OpKind kind) {
  return share(single(spec_of(name, {4}, DataType::kFloat32, kind)));
}

UnitPtr broadcast(const std::string& name, std::int32_t root, DataType dtype) {
  TensorSpec spec = spec_of(name, {4}, dtype, OpKind::kBroadcast);
  spec.root = root;
  return share(single(std::move(spec)));
}

struct Row {
  const char* what;
  std::vector<UnitOrder> units;
  FusionOptions options;
  Cuts cuts;  // empty: every tensor alone
};

TEST(FusionPlanner, Table) {
  const FusionOptions wide{1024, 1024};
  const UnitPtr a = allreduce("a");  // 16 bytes each
  const UnitPtr b = allreduce("b");
  const UnitPtr c = allreduce("c");
  const std::vector<Row> rows = {
      {"nothing", {}, wide, {}},
      {"one tensor", {order(a)}, wide, {}},
      {"equal ones fuse", {order(a), order(b), order(c)}, wide, {{0, 1, 2}}},
      {"threshold 0 switches it off", {order(a), order(b)}, {0, 1024}, {}},
      {"the threshold bounds a cut", {order(a), order(b), order(c)}, {32, 32}, {{0, 1}, {2}}},
      {"exactly the threshold", {order(a), order(b)}, {32, 32}, {{0, 1}}},
      {"one byte less", {order(a), order(b)}, {31, 31}, {}},
      {"large tensors stand alone",
       {order(a), order(allreduce("l", 0, 100)), order(b)},
       {1024, 256},
       {{0, 2}, {1}}},
      {"past another dtype",
       {order(a), order(typed("h", DataType::kFloat16)), order(b),
        order(typed("i", DataType::kFloat16))},
       wide,
       {{0, 2}, {1, 3}}},
      {"other ops apart",
       {order(a), order(with_op("m", ReduceOp::kMax)), order(b)},
       wide,
       {{0, 2}, {1}}},
      {"other kinds alone",
       {order(a), order(of_kind("g", OpKind::kAllgather)), order(of_kind("h", OpKind::kAllgather)),
        order(b)},
       wide,
       {{0, 3}, {1}, {2}}},
      {"Adasum alone",
       {order(with_op("m", ReduceOp::kAdasum)), order(a), order(with_op("n", ReduceOp::kAdasum)),
        order(b)},
       wide,
       {{0}, {1, 3}, {2}}},
      {"broadcasts of one root, whatever their dtypes",
       {order(broadcast("p", 1, DataType::kFloat32)), order(a),
        order(broadcast("q", 1, DataType::kInt8)), order(broadcast("r", 2, DataType::kFloat32))},
       wide,
       {{0, 2}, {1}, {3}}},
      {"process sets apart", {order(a), order(allreduce("a", 1)), order(b)}, wide, {{0, 2}, {1}}},
      {"absent ranks apart", {order(a), order(b, {2}), order(c)}, wide, {{0, 2}, {1}}},
      {"members of a group fuse with others",
       {order(group("G", {spec_of("x", {4}), spec_of("y", {4})})), order(a)},
       wide,
       {{0, 1, 2}}},
      {"empty tensors too", {order(allreduce("e", 0, 0)), order(a)}, wide, {{0, 1}}},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(plan_fusion(row.units, row.options), row.cuts) << row.what;
  }
}

TEST(FusionPlanner, EveryTensorStandsInExactlyOneCut) {
  std::vector<UnitOrder> units;
  for (int i = 0; i < 500; ++i) {
    units.push_back(order(typed("t" + std::to_string(i),
                                i % 3 == 0 ? DataType::kFloat64 : DataType::kFloat32, i % 50)));
  }
  std::vector<int> seen(units.size());
  for (const auto& cut : plan_fusion(units, {512, 128})) {
    for (const std::uint32_t place : cut) ++seen.at(place);
  }
  for (const int times : seen) EXPECT_EQ(times, 1);
}

}  // namespace
}  // namespace kolo::internal
