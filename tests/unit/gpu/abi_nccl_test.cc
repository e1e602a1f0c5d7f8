// kolo's own declarations of NCCL against the real header: at compile time, wherever that is
// installed; elsewhere the test is skipped, visibly. Apart from abi_test.cc, because nccl.h brings
// C++ overloads of the CUDA runtime's functions.
#include <gtest/gtest.h>

#include <cstddef>

#include "ops/nccl/abi.h"
#include "same_abi.h"

#if KOLO_HAVE_NCCL_HEADER
#include <nccl.h>
#endif

namespace kolo::test {
namespace {

#if KOLO_HAVE_NCCL_HEADER
namespace nccl = internal::nccl;

#define KOLO_CHECK_FUNCTION(result, name, parameters) \
  static_assert(same_abi<decltype(nccl::Functions::name), decltype(&::name)>(), #name);
#define KOLO_NO_CHECK(result, name, parameters)
KOLO_NCCL_FUNCTIONS(KOLO_CHECK_FUNCTION, KOLO_NO_CHECK)
#if NCCL_VERSION_CODE >= 22700
KOLO_NCCL_FUNCTIONS(KOLO_NO_CHECK, KOLO_CHECK_FUNCTION)
#endif
#undef KOLO_CHECK_FUNCTION
#undef KOLO_NO_CHECK

static_assert(nccl::kSuccess == ncclSuccess);
static_assert(nccl::kUnhandledCudaError == ncclUnhandledCudaError);
static_assert(nccl::kSystemError == ncclSystemError);
static_assert(nccl::kInternalError == ncclInternalError);
static_assert(nccl::kInvalidArgument == ncclInvalidArgument);
static_assert(nccl::kInvalidUsage == ncclInvalidUsage);
static_assert(nccl::kRemoteError == ncclRemoteError);
static_assert(nccl::kInProgress == ncclInProgress);
static_assert(nccl::kOldestLibrary == NCCL_VERSION(2, 18, 0));
static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
static_assert(nccl::kInt8 == ncclInt8 && nccl::kUint8 == ncclUint8);
static_assert(nccl::kInt32 == ncclInt32 && nccl::kUint32 == ncclUint32);
static_assert(nccl::kInt64 == ncclInt64 && nccl::kUint64 == ncclUint64);
static_assert(nccl::kFloat16 == ncclFloat16 && nccl::kFloat32 == ncclFloat32);
static_assert(nccl::kFloat64 == ncclFloat64 && nccl::kBfloat16 == ncclBfloat16);
#if NCCL_VERSION_CODE >= 22400
static_assert(nccl::kFloat8E4m3 == ncclFloat8e4m3 && nccl::kFloat8E5m2 == ncclFloat8e5m2);
#endif
static_assert(nccl::kSum == ncclSum && nccl::kProd == ncclProd && nccl::kMax == ncclMax);
static_assert(nccl::kMin == ncclMin && nccl::kAvg == ncclAvg);
static_assert(nccl::kScalarOnDevice == ncclScalarDevice);
static_assert(nccl::kScalarOnHost == ncclScalarHostImmediate);
#if NCCL_VERSION_CODE >= 22700
static_assert(nccl::kWindowCollectiveSymmetric == NCCL_WIN_COLL_SYMMETRIC);
static_assert(nccl::kShrinkDefault == NCCL_SHRINK_DEFAULT);
static_assert(nccl::kShrinkAbort == NCCL_SHRINK_ABORT);
#endif

using Config = nccl::CommConfig;
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));
static_assert(Config::kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(Config, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));
#endif

TEST(Abi, NcclsHeaderSaysTheSame) {
#if KOLO_HAVE_NCCL_HEADER
  RecordProperty("nccl", NCCL_VERSION_CODE);
  const ncclConfig_t real = NCCL_CONFIG_INITIALIZER;
  const Config config;
  EXPECT_EQ(config.magic, real.magic);
  EXPECT_EQ(config.size, sizeof config);
  EXPECT_LE(config.size, real.size);
  EXPECT_LE(config.version, real.version);
  EXPECT_EQ(config.blocking, real.blocking);
#else
  GTEST_SKIP() << "no nccl.h was found when this test was built";
#endif
}

}  // namespace
}  // namespace kolo::test
