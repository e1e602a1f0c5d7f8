// kolo's own declarations of the CUDA runtime against the real header: at compile time,
// wherever that is installed; elsewhere the test is skipped, visibly.
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "ops/cuda/abi.h"
#include "same_abi.h"

#if KOLO_HAVE_CUDA_HEADER
#include <cuda_runtime_api.h>
#endif

namespace kolo::test {
namespace {

// The checker itself.
static_assert(same_abi<int (*)(void*, unsigned long), int (*)(char*, long)>());
static_assert(!same_abi<int (*)(void*), int (*)(void*, int)>());
static_assert(!same_abi<int (*)(int), int (*)(long)>());
static_assert(!same_abi<int (*)(long), int (*)(void*)>());
static_assert(!same_abi<int (*)(), void (*)()>());
static_assert(!same_abi<int (*)(float), int (*)(int)>());

#if KOLO_HAVE_CUDA_HEADER
namespace own = internal::cuda;

// Functions later than the installed header cannot be checked here.
#define KOLO_CHECK_FUNCTION(result, name, parameters) \
  static_assert(same_abi<decltype(own::Functions::name), decltype(&::name)>(), #name);
#define KOLO_NO_CHECK(result, name, parameters)
KOLO_CUDA_FUNCTIONS(KOLO_CHECK_FUNCTION, KOLO_NO_CHECK)
#if CUDART_VERSION >= 12080
KOLO_CUDA_FUNCTIONS(KOLO_NO_CHECK, KOLO_CHECK_FUNCTION)
#endif
#undef KOLO_CHECK_FUNCTION
#undef KOLO_NO_CHECK

static_assert(own::kSuccess == cudaSuccess);
static_assert(own::kInvalidValue == cudaErrorInvalidValue);
static_assert(own::kMemoryAllocation == cudaErrorMemoryAllocation);
static_assert(own::kInitializationError == cudaErrorInitializationError);
static_assert(own::kRuntimeUnloading == cudaErrorCudartUnloading);
static_assert(own::kInsufficientDriver == cudaErrorInsufficientDriver);
static_assert(own::kNoDevice == cudaErrorNoDevice);
static_assert(own::kInvalidDevice == cudaErrorInvalidDevice);
static_assert(own::kNoKernelImage == cudaErrorNoKernelImageForDevice);
static_assert(own::kNotFound == cudaErrorSymbolNotFound);
static_assert(own::kInvalidHandle == cudaErrorInvalidResourceHandle);
static_assert(own::kNotReady == cudaErrorNotReady);
static_assert(own::kNotSupported == cudaErrorNotSupported);
static_assert(own::kCaptureUnsupported == cudaErrorStreamCaptureUnsupported);
static_assert(own::kCaptureImplicit == cudaErrorStreamCaptureImplicit);
static_assert(own::kStreamNonBlocking == cudaStreamNonBlocking);
static_assert(own::kEventBlockingSync == cudaEventBlockingSync);
static_assert(own::kEventDisableTiming == cudaEventDisableTiming);
static_assert(own::kHostAllocPortable == cudaHostAllocPortable);
static_assert(own::kCopyHostToHost == cudaMemcpyHostToHost);
static_assert(own::kCopyHostToDevice == cudaMemcpyHostToDevice);
static_assert(own::kCopyDeviceToHost == cudaMemcpyDeviceToHost);
static_assert(own::kCopyDeviceToDevice == cudaMemcpyDeviceToDevice);
static_assert(own::kCopyByAddress == cudaMemcpyDefault);
static_assert(own::kCaptureNone == cudaStreamCaptureStatusNone);
static_assert(own::kCaptureActive == cudaStreamCaptureStatusActive);
static_assert(own::kCaptureInvalidated == cudaStreamCaptureStatusInvalidated);
static_assert(own::kCaptureModeRelaxed == cudaStreamCaptureModeRelaxed);
static_assert(own::kMemoryUnregistered == cudaMemoryTypeUnregistered);
static_assert(own::kMemoryHost == cudaMemoryTypeHost);
static_assert(own::kMemoryDevice == cudaMemoryTypeDevice);
static_assert(own::kMemoryManaged == cudaMemoryTypeManaged);
static_assert(own::kMultiprocessorCount == cudaDevAttrMultiProcessorCount);
static_assert(own::kUnifiedAddressing == cudaDevAttrUnifiedAddressing);
static_assert(own::kComputeCapabilityMajor == cudaDevAttrComputeCapabilityMajor);
static_assert(own::kComputeCapabilityMinor == cudaDevAttrComputeCapabilityMinor);

using Attributes = own::PointerAttributes;
static_assert(sizeof(Attributes) >= sizeof(cudaPointerAttributes));
static_assert(offsetof(Attributes, type) == offsetof(cudaPointerAttributes, type));
static_assert(offsetof(Attributes, device) == offsetof(cudaPointerAttributes, device));
static_assert(offsetof(Attributes, device_pointer) ==
              offsetof(cudaPointerAttributes, devicePointer));
static_assert(offsetof(Attributes, host_pointer) == offsetof(cudaPointerAttributes, hostPointer));
static_assert(sizeof(own::Dim3) == sizeof(dim3) && offsetof(own::Dim3, z) == offsetof(dim3, z));
#endif

TEST(Abi, TheCudaRuntimesHeaderSaysTheSame) {
#if KOLO_HAVE_CUDA_HEADER
  RecordProperty("cuda", CUDART_VERSION);
#else
  GTEST_SKIP() << "no cuda_runtime_api.h was found when this test was built";
#endif
}

}  // namespace
}  // namespace kolo::test
