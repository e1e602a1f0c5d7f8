// The numbers of kolo.h are the internal ones.
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/status.h"
#include "base/types.h"
#include "kolo/kolo.h"

namespace kolo::internal {
namespace {

template <typename Public, typename Internal>
constexpr bool equal(Public ours, Internal theirs) {
  return static_cast<std::int32_t>(ours) == static_cast<std::int32_t>(theirs);
}

static_assert(equal(KOLO_OK, StatusCode::kOk));
static_assert(equal(KOLO_INVALID_ARGUMENT, StatusCode::kInvalidArgument));
static_assert(equal(KOLO_MISMATCH, StatusCode::kMismatch));
static_assert(equal(KOLO_DUPLICATE_NAME, StatusCode::kDuplicateName));
static_assert(equal(KOLO_NOT_INITIALIZED, StatusCode::kNotInitialized));
static_assert(equal(KOLO_WOULD_DEADLOCK, StatusCode::kWouldDeadlock));
static_assert(equal(KOLO_ABORTED, StatusCode::kAborted));
static_assert(equal(KOLO_PEER_LOST, StatusCode::kPeerLost));
static_assert(equal(KOLO_TIMED_OUT, StatusCode::kTimedOut));
static_assert(equal(KOLO_RESOURCE, StatusCode::kResource));
static_assert(equal(KOLO_INTERNAL, StatusCode::kInternal));
static_assert(equal(KOLO_UNSUPPORTED, StatusCode::kUnsupported));
static_assert(equal(KOLO_IN_PROGRESS, StatusCode::kInProgress));

static_assert(equal(KOLO_INT8, DataType::kInt8) && equal(KOLO_UINT8, DataType::kUint8));
static_assert(equal(KOLO_INT16, DataType::kInt16) && equal(KOLO_UINT16, DataType::kUint16));
static_assert(equal(KOLO_INT32, DataType::kInt32) && equal(KOLO_UINT32, DataType::kUint32));
static_assert(equal(KOLO_INT64, DataType::kInt64) && equal(KOLO_UINT64, DataType::kUint64));
static_assert(equal(KOLO_FLOAT16, DataType::kFloat16) && equal(KOLO_BOOL, DataType::kBool));
static_assert(equal(KOLO_BFLOAT16, DataType::kBfloat16));
static_assert(equal(KOLO_FLOAT32, DataType::kFloat32));
static_assert(equal(KOLO_FLOAT64, DataType::kFloat64));
static_assert(equal(KOLO_FLOAT8_E4M3, DataType::kFloat8E4m3));
static_assert(equal(KOLO_FLOAT8_E5M2, DataType::kFloat8E5m2));

static_assert(equal(KOLO_SUM, ReduceOp::kSum) && equal(KOLO_PROD, ReduceOp::kProd));
static_assert(equal(KOLO_MAX, ReduceOp::kMax) && equal(KOLO_MIN, ReduceOp::kMin));
static_assert(equal(KOLO_AVG, ReduceOp::kAvg));

static_assert(equal(KOLO_LOG_ERROR, LogLevel::kError) && equal(KOLO_LOG_DEBUG, LogLevel::kDebug));
static_assert(equal(KOLO_LOG_WARNING, LogLevel::kWarning) && equal(KOLO_LOG_INFO, LogLevel::kInfo));

// The layout is part of the ABI: a field that moves needs another KOLO_ABI_VERSION.
static_assert(sizeof(kolo_options) == 120 && offsetof(kolo_options, ndim) == 24);
static_assert(offsetof(kolo_options, prescale) == 32 && offsetof(kolo_options, timeout_ms) == 48);
static_assert(offsetof(kolo_options, device) == 104 && offsetof(kolo_options, stream) == 112);
static_assert(offsetof(kolo_options, callback) == 56 && offsetof(kolo_options, persistent) == 72);

TEST(NumbersTest, EveryNumberHasItsWords) {
  for (int number = KOLO_OK; number <= KOLO_NCCL_ERROR; ++number) {
    EXPECT_STRNE(kolo_status_string(static_cast<kolo_status>(number)), "unknown status") << number;
  }
  for (const int number : {-1, 15, 1000}) {
    EXPECT_STREQ(kolo_status_string(static_cast<kolo_status>(number)), "unknown status") << number;
  }
}

}  // namespace
}  // namespace kolo::internal
