// What kolo calls of NCCL (libnccl.so.2, from 2.18 on), in its own words: the few types, constants
// and prototypes, so that kolo builds where NCCL is not installed, and no symbol of it is linked.
// Checked against the real header, wherever that is found, by tests/unit/gpu.
//
// Handles are opaque pointers; enumerations are plain integers of the same width.
#pragma once

#include <climits>
#include <cstddef>

#include "base/types.h"
#include "ops/cuda/abi.h"

namespace kolo::internal::nccl {

using Error = int;
inline constexpr Error kSuccess = 0;
inline constexpr Error kUnhandledCudaError = 1;
inline constexpr Error kSystemError = 2;
inline constexpr Error kInternalError = 3;
inline constexpr Error kInvalidArgument = 4;
inline constexpr Error kInvalidUsage = 5;
inline constexpr Error kRemoteError = 6;
inline constexpr Error kInProgress = 7;

// 10000 * major + 100 * minor + patch, as the library says it.
inline constexpr int kOldestLibrary = 21800;

using CommHandle = struct OpaqueComm*;
using WindowHandle = struct OpaqueWindow*;

inline constexpr std::size_t kUniqueIdBytes = 128;
struct UniqueId {
  char bytes[kUniqueIdBytes] = {};
};

using DataTypeNumber = int;
inline constexpr DataTypeNumber kInt8 = 0;
inline constexpr DataTypeNumber kUint8 = 1;
inline constexpr DataTypeNumber kInt32 = 2;
inline constexpr DataTypeNumber kUint32 = 3;
inline constexpr DataTypeNumber kInt64 = 4;
inline constexpr DataTypeNumber kUint64 = 5;
inline constexpr DataTypeNumber kFloat16 = 6;
inline constexpr DataTypeNumber kFloat32 = 7;
inline constexpr DataTypeNumber kFloat64 = 8;
inline constexpr DataTypeNumber kBfloat16 = 9;
inline constexpr DataTypeNumber kFloat8E4m3 = 10;  // known to the library from 2.24 on
inline constexpr DataTypeNumber kFloat8E5m2 = 11;

using ReduceOpNumber = int;
inline constexpr ReduceOpNumber kSum = 0;
inline constexpr ReduceOpNumber kProd = 1;
inline constexpr ReduceOpNumber kMax = 2;
inline constexpr ReduceOpNumber kMin = 3;
inline constexpr ReduceOpNumber kAvg = 4;

// kolo's own numbers are these: no table translates between them.
static_assert(kInt8 == static_cast<int>(DataType::kInt8));
static_assert(kUint8 == static_cast<int>(DataType::kUint8));
static_assert(kInt32 == static_cast<int>(DataType::kInt32));
static_assert(kUint32 == static_cast<int>(DataType::kUint32));
static_assert(kInt64 == static_cast<int>(DataType::kInt64));
static_assert(kUint64 == static_cast<int>(DataType::kUint64));
static_assert(kFloat16 == static_cast<int>(DataType::kFloat16));
static_assert(kFloat32 == static_cast<int>(DataType::kFloat32));
static_assert(kFloat64 == static_cast<int>(DataType::kFloat64));
static_assert(kBfloat16 == static_cast<int>(DataType::kBfloat16));
static_assert(kFloat8E4m3 == static_cast<int>(DataType::kFloat8E4m3));
static_assert(kFloat8E5m2 == static_cast<int>(DataType::kFloat8E5m2));
static_assert(kSum == static_cast<int>(ReduceOp::kSum));
static_assert(kProd == static_cast<int>(ReduceOp::kProd));
static_assert(kMax == static_cast<int>(ReduceOp::kMax));
static_assert(kMin == static_cast<int>(ReduceOp::kMin));
static_assert(kAvg == static_cast<int>(ReduceOp::kAvg));

using ScalarResidence = int;
inline constexpr ScalarResidence kScalarOnDevice = 0;
inline constexpr ScalarResidence kScalarOnHost = 1;  // read before the call returns

inline constexpr int kWindowCollectiveSymmetric = 1;
inline constexpr int kShrinkDefault = 0;
inline constexpr int kShrinkAbort = 1;

// A communicator's options as 2.18 knew them. The library copies `size` bytes over its own defaults
// and takes back what `version` did not know; so newer ones accept this too.
struct CommConfig {
  static constexpr int kUndefined = INT_MIN;

  std::size_t size = 48;
  unsigned magic = 0xcafebeef;
  unsigned version = kOldestLibrary;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int padding = kUndefined;  // traffic class since 2.25; copied, therefore not left to chance
};
static_assert(sizeof(CommConfig) == 48);

// Every function that kolo calls, as (result, name, parameters). `required` ones are in 2.18
// already; `optional` ones came later, and are null where the library lacks them.
// clang-format off
#define KOLO_NCCL_FUNCTIONS(required, optional)                                                    \
  required(Error, ncclGetVersion, (int* version))                                                  \
  required(const char*, ncclGetErrorString, (Error error))                                         \
  required(const char*, ncclGetLastError, (CommHandle comm))                                       \
  required(Error, ncclGetUniqueId, (UniqueId* id))                                                 \
  required(Error, ncclCommInitRankConfig,                                                          \
           (CommHandle* comm, int size, UniqueId id, int rank, CommConfig* config))                \
  required(Error, ncclCommGetAsyncError, (CommHandle comm, Error* error))                          \
  required(Error, ncclCommFinalize, (CommHandle comm))                                             \
  required(Error, ncclCommDestroy, (CommHandle comm))                                              \
  required(Error, ncclCommAbort, (CommHandle comm))                                                \
  required(Error, ncclCommCount, (CommHandle comm, int* size))                                     \
  required(Error, ncclAllReduce,                                                                   \
           (const void* input, void* output, std::size_t count, DataTypeNumber dtype,              \
            ReduceOpNumber op, CommHandle comm, cuda::StreamHandle stream))                        \
  required(Error, ncclReduce,                                                                      \
           (const void* input, void* output, std::size_t count, DataTypeNumber dtype,              \
            ReduceOpNumber op, int root, CommHandle comm, cuda::StreamHandle stream))              \
  required(Error, ncclBroadcast,                                                                   \
           (const void* input, void* output, std::size_t count, DataTypeNumber dtype, int root,    \
            CommHandle comm, cuda::StreamHandle stream))                                           \
  required(Error, ncclReduceScatter,                                                               \
           (const void* input, void* output, std::size_t output_count, DataTypeNumber dtype,       \
            ReduceOpNumber op, CommHandle comm, cuda::StreamHandle stream))                        \
  required(Error, ncclAllGather,                                                                   \
           (const void* input, void* output, std::size_t input_count, DataTypeNumber dtype,        \
            CommHandle comm, cuda::StreamHandle stream))                                           \
  required(Error, ncclSend,                                                                        \
           (const void* input, std::size_t count, DataTypeNumber dtype, int peer, CommHandle comm, \
            cuda::StreamHandle stream))                                                            \
  required(Error, ncclRecv,                                                                        \
           (void* output, std::size_t count, DataTypeNumber dtype, int peer, CommHandle comm,      \
            cuda::StreamHandle stream))                                                            \
  required(Error, ncclGroupStart, ())                                                              \
  required(Error, ncclGroupEnd, ())                                                                \
  required(Error, ncclRedOpCreatePreMulSum,                                                        \
           (ReduceOpNumber* op, void* scalar, DataTypeNumber dtype, ScalarResidence residence,     \
            CommHandle comm))                                                                      \
  required(Error, ncclRedOpDestroy, (ReduceOpNumber op, CommHandle comm))                          \
  /* 2.19 */                                                                                       \
  optional(Error, ncclMemAlloc, (void** pointer, std::size_t bytes))                               \
  optional(Error, ncclMemFree, (void* pointer))                                                    \
  optional(Error, ncclCommRegister,                                                                \
           (CommHandle comm, void* pointer, std::size_t bytes, void** handle))                     \
  optional(Error, ncclCommDeregister, (CommHandle comm, void* handle))                             \
  /* 2.27 */                                                                                       \
  optional(Error, ncclCommWindowRegister,                                                          \
           (CommHandle comm, void* pointer, std::size_t bytes, WindowHandle* window, int flags))   \
  optional(Error, ncclCommWindowDeregister, (CommHandle comm, WindowHandle window))                \
  optional(Error, ncclCommShrink,                                                                  \
           (CommHandle comm, int* excluded, int excluded_count, CommHandle* shrunk,                \
            CommConfig* config, int flags))
// clang-format on

// The functions by their own names; a plain value, shared by any threads once it is filled.
struct Functions {
#define KOLO_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  KOLO_NCCL_FUNCTIONS(KOLO_MEMBER, KOLO_MEMBER)
#undef KOLO_MEMBER
};

}  // namespace kolo::internal::nccl
