// How the CUDA runtime and NCCL are found, and what is said where they are not: with libraries that
// are none, and with the real ones wherever they are installed. No device is needed.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <string>

#include "base/dynamic_library.h"
#include "ops/cuda/runtime.h"
#include "ops/nccl/library.h"

namespace kolo::internal {
namespace {

using cuda::Presence;
using cuda::Runtime;
using nccl::Library;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kPartial[] = KOLO_PARTIAL_CUDART;

Config with(const char* key, const std::string& value) {
  Config config;
  EXPECT_TRUE(config.set(key, value).is_ok());
  return config;
}

// First: this process has no CUDA yet, and afterwards it has.
TEST(Loading, PresenceIsSeenWhenCudaComes) {
  if (!cuda::kIsBuilt) GTEST_SKIP() << "built with KOLO_WITH_CUDA=OFF";
  Presence presence{Config()};
  Presence off(with("cuda", "off"));
  Presence named(with("cudart_path", "/nowhere/libcudart.so.13"));
  EXPECT_TRUE(named.is_cuda_in_process());
  EXPECT_FALSE(presence.is_cuda_in_process());
  EXPECT_FALSE(presence.is_cuda_in_process());
  ASSERT_NE(::dlopen(kPartial, RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
  EXPECT_TRUE(presence.is_cuda_in_process());
  EXPECT_TRUE(presence.is_cuda_in_process());
  EXPECT_FALSE(off.is_cuda_in_process());
}

#if KOLO_REAL_CUDART
// Before anything loads it for good.
TEST(Loading, ALookLeavesNothingBehind) {
  if (!cuda::kIsBuilt) GTEST_SKIP() << "built with KOLO_WITH_CUDA=OFF";
  constexpr char kSoname[] = "libcudart.so.13";
  const bool was_loaded = DynamicLibrary::is_loaded(kSoname);
  const auto found = Runtime::look(with("cudart_path", KOLO_REAL_CUDART_PATH));
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_GE(found->version, cuda::kOldestRuntime);
  EXPECT_THAT(found->path, HasSubstr("libcudart"));
  EXPECT_EQ(DynamicLibrary::is_loaded(kSoname), was_loaded);
}
#endif

TEST(Loading, OffIsSaid) {
  const Config off = with("cuda", "off");
  EXPECT_EQ(Runtime::load(off).status().code(), StatusCode::kUnsupported);
  if (!cuda::kIsBuilt) {
    EXPECT_THAT(Runtime::load(Config()).status().text(), HasSubstr("KOLO_WITH_CUDA=AUTO"));
    EXPECT_THAT(Library::load(Config()).status().text(), HasSubstr("KOLO_WITH_CUDA=AUTO"));
    return;
  }
  EXPECT_THAT(Runtime::load(off).status().text(),
              AllOf(StartsWith("CUDA"), HasSubstr("KOLO_CUDA")));
  EXPECT_THAT(Library::load(off).status().text(),
              AllOf(StartsWith("NCCL"), HasSubstr("KOLO_CUDA")));
}

TEST(Loading, WhatIsMissingIsSaidWithTheCure) {
  if (!cuda::kIsBuilt) GTEST_SKIP() << "built with KOLO_WITH_CUDA=OFF";
  const auto cuda = Runtime::load(with("cudart_path", "/nowhere/libcudart.so.13"));
  EXPECT_EQ(cuda.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(cuda.status().text(),
              AllOf(HasSubstr("/nowhere/libcudart.so.13"), HasSubstr("No such file"),
                    HasSubstr("12.0"), HasSubstr("KOLO_CUDART_PATH")));
  const auto nccl = Library::load(with("nccl_path", "/nowhere/libnccl.so.2"));
  EXPECT_EQ(nccl.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(nccl.status().text(),
              AllOf(HasSubstr("/nowhere/libnccl.so.2"), HasSubstr("No such file"),
                    HasSubstr("2.18.0"), HasSubstr("KOLO_NCCL_PATH")));
}

TEST(Loading, AnotherOrOlderLibraryIsRefusedByName) {
  if (!cuda::kIsBuilt) GTEST_SKIP() << "built with KOLO_WITH_CUDA=OFF";
  const auto cuda = Runtime::load(with("cudart_path", kPartial));
  EXPECT_EQ(cuda.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(cuda.status().text(), AllOf(HasSubstr(kPartial), HasSubstr("lacks cudaGetErrorName"),
                                          HasSubstr("12.0"), HasSubstr("KOLO_CUDART_PATH")));
  const auto nccl = Library::load(with("nccl_path", kPartial));
  EXPECT_EQ(nccl.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(nccl.status().text(), AllOf(HasSubstr(kPartial), HasSubstr("lacks ncclGetVersion"),
                                          HasSubstr("2.18.0"), HasSubstr("KOLO_NCCL_PATH")));
}

#if KOLO_REAL_CUDART
TEST(Loading, TheInstalledRuntime) {
  if (!cuda::kIsBuilt) GTEST_SKIP() << "built with KOLO_WITH_CUDA=OFF";
  const auto runtime = Runtime::load(with("cudart_path", KOLO_REAL_CUDART_PATH));
  ASSERT_TRUE(runtime.is_ok()) << runtime.status().to_string();
  EXPECT_GE((*runtime)->version(), cuda::kOldestRuntime);
  EXPECT_THAT((*runtime)->path(), HasSubstr("libcudart"));
  EXPECT_TRUE((*runtime)->status_of(cuda::kSuccess, "").is_ok());
  const Status memory = (*runtime)->status_of(cuda::kMemoryAllocation, "cudaMalloc of 12 bytes");
  EXPECT_EQ(memory.code(), StatusCode::kResource);
  EXPECT_THAT(memory.text(), AllOf(HasSubstr("cudaMalloc of 12 bytes"), HasSubstr("out of memory"),
                                   HasSubstr("cudaErrorMemoryAllocation 2")));
  const auto devices = (*runtime)->count_devices();
  if (devices.is_ok()) {
    EXPECT_GE(*devices, 1);
  } else {
    EXPECT_EQ(devices.status().code(), StatusCode::kUnsupported);
    EXPECT_THAT(devices.status().text(), HasSubstr((*runtime)->path()));
  }
}
#endif

#if KOLO_REAL_NCCL
TEST(Loading, TheInstalledNccl) {
  if (!cuda::kIsBuilt) GTEST_SKIP() << "built with KOLO_WITH_CUDA=OFF";
  const auto library = Library::load(with("nccl_path", KOLO_REAL_NCCL_PATH));
  ASSERT_TRUE(library.is_ok()) << library.status().to_string();
  EXPECT_GE((*library)->version(), nccl::kOldestLibrary);
  EXPECT_THAT((*library)->path(), HasSubstr("libnccl"));
  EXPECT_TRUE((*library)->status_of(nccl::kSuccess, "").is_ok());
  const Status misuse = (*library)->status_of(nccl::kInvalidArgument, "ncclReduce of g");
  EXPECT_EQ(misuse.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(misuse.text(), AllOf(HasSubstr("ncclReduce of g"), HasSubstr("invalid argument")));
}
#endif

TEST(Loading, VersionsAsText) {
  EXPECT_EQ(cuda::version_text(13000), "13.0");
  EXPECT_EQ(cuda::version_text(12080), "12.8");
  EXPECT_EQ(nccl::version_text(22809), "2.28.9");
  EXPECT_EQ(nccl::version_text(21800), "2.18.0");
}

}  // namespace
}  // namespace kolo::internal
