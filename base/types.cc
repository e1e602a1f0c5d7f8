#include "base/types.h"

#include <iterator>

namespace kolo::internal {
namespace {

struct DataTypeRow {
  std::string_view name;
  std::size_t bytes;
};
constexpr DataTypeRow kDataTypes[kDataTypeCount] = {
    {"i8", 1},     {"u8", 1},     {"i32", 4},  {"u32", 4}, {"i64", 8},
    {"u64", 8},    {"f16", 2},    {"f32", 4},  {"f64", 8}, {"bf16", 2},
    {"f8e4m3", 1}, {"f8e5m2", 1}, {"bool", 1}, {"i16", 2}, {"u16", 2},
};
constexpr std::string_view kReduceOps[kReduceOpCount] = {"sum", "prod", "max", "min", "avg"};
constexpr std::string_view kOpKinds[] = {"allreduce",   "allgather",      "broadcast",
                                         "barrier",     "reduce_scatter", "alltoall",
                                         "pset_create", "pset_destroy"};

}  // namespace

bool is_valid(DataType dtype) {
  const auto n = static_cast<std::int32_t>(dtype);
  return n >= 0 && n < kDataTypeCount;
}

bool is_valid(ReduceOp op) {
  const auto n = static_cast<std::int32_t>(op);
  return (n >= 0 && n < kReduceOpCount) || op == ReduceOp::kAdasum;
}

std::size_t element_bytes(DataType dtype) {
  return is_valid(dtype) ? kDataTypes[static_cast<std::size_t>(dtype)].bytes : 0;
}

std::string_view data_type_name(DataType dtype) {
  return is_valid(dtype) ? kDataTypes[static_cast<std::size_t>(dtype)].name : "unknown";
}

std::string_view reduce_op_name(ReduceOp op) {
  if (op == ReduceOp::kAdasum) return "adasum";
  return is_valid(op) ? kReduceOps[static_cast<std::size_t>(op)] : "unknown";
}

std::string_view op_kind_name(OpKind kind) {
  const auto n = static_cast<std::size_t>(kind);
  return n < std::size(kOpKinds) ? kOpKinds[n] : "unknown";
}

bool is_floating(DataType dtype) {
  return dtype == DataType::kFloat16 || dtype == DataType::kBfloat16 ||
         dtype == DataType::kFloat32 || dtype == DataType::kFloat64;
}

bool is_integer(DataType dtype) {
  return is_valid(dtype) && !is_floating(dtype) && dtype != DataType::kBool &&
         dtype != DataType::kFloat8E4m3 && dtype != DataType::kFloat8E5m2;
}

bool can_reduce(DataType dtype, ReduceOp op) {
  if (!is_valid(dtype) || !is_valid(op)) return false;
  if (dtype == DataType::kFloat8E4m3 || dtype == DataType::kFloat8E5m2) return false;
  if (op == ReduceOp::kAdasum) return is_floating(dtype);
  return !(dtype == DataType::kBool && op == ReduceOp::kAvg);
}

}  // namespace kolo::internal
