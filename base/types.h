// The words every room shares: data types, reduction operators, kinds of operation.
// Plain enums and pure functions; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kolo::internal {

// NCCL's numbers for NCCL's types, then kolo's own; the same as kolo_dtype in kolo.h.
enum class DataType : std::int32_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8E4m3 = 10,
  kFloat8E5m2 = 11,
  kBool = 12,
  kInt16 = 13,
  kUint16 = 14,
};
inline constexpr int kDataTypeCount = 15;

// NCCL's numbers; the same as kolo_op in kolo.h.
enum class ReduceOp : std::int32_t {
  kSum = 0,
  kProd = 1,
  kMax = 2,
  kMin = 3,
  kAvg = 4,
  kAdasum = 16,
};
inline constexpr int kReduceOpCount = 5;  // of those that combine element by element

// What a tensor's submission asks for.
enum class OpKind : std::int32_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kBarrier = 3,
  kReduceScatter = 4,
  kAlltoall = 5,
  kCreateSet = 6,   // of the world: a new process set
  kDestroySet = 7,  // of the world
};

[[nodiscard]] bool is_valid(DataType dtype);
[[nodiscard]] bool is_valid(ReduceOp op);
// Bytes of one element; 0 for a number that is no data type.
[[nodiscard]] std::size_t element_bytes(DataType dtype);
// "f32", "bf16", "bool", ...; "unknown".
[[nodiscard]] std::string_view data_type_name(DataType dtype);
// "sum", "avg", ...
[[nodiscard]] std::string_view reduce_op_name(ReduceOp op);
// "allreduce", "broadcast", ...
[[nodiscard]] std::string_view op_kind_name(OpKind kind);
[[nodiscard]] bool is_floating(
    DataType dtype);  // f16, bf16, f32, f64 (fp8 is moved, never computed)
[[nodiscard]] bool is_integer(DataType dtype);  // signed and unsigned; not bool
// Whether `op` is defined on `dtype`: fp8 never; bool not for avg; adasum for floats
// only; all else yes.
[[nodiscard]] bool can_reduce(DataType dtype, ReduceOp op);

}  // namespace kolo::internal
