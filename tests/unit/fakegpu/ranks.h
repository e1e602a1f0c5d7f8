// Ranks as threads of one process, each with a device, a communicator and a stream of its own.
//
// Threads: run_ranks() makes one per rank, and joins them. Ownership: a Rank owns its handles.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "tests/fakegpu/fakegpu.h"
#include "tests/fakegpu/nccl/nccl_abi.h"
#include "tests/fakegpu/runtime_abi.h"

namespace fakegpu {

namespace cuda = kolo::internal::cuda;
namespace nccl = kolo::internal::nccl;

struct Rank {
  int rank = 0;
  int size = 0;
  nccl::CommHandle comm = nullptr;
  cuda::StreamHandle stream = nullptr;
  nccl::UniqueId id;

  // Makes the communicator of this rank; `blocking` as in NCCL's configuration.
  int begin(int blocking = 1) {
    nccl::CommConfig config;
    config.blocking = blocking;
    return nccl::ncclCommInitRankConfig(&comm, size, id, rank, &config);
  }
  // Waits until the communicator has done what it does; returns its error.
  int settle() const {
    int error = nccl::kInProgress;
    for (int turn = 0; turn < 10000 && error == nccl::kInProgress; ++turn) {
      EXPECT_EQ(nccl::ncclCommGetAsyncError(comm, &error), nccl::kSuccess);
      if (error == nccl::kInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return error;
  }
  int synchronize() const { return cuda::cudaStreamSynchronize(stream); }

  // A device buffer with these elements; freed by drop().
  template <class Type>
  static Type* upload(const std::vector<Type>& values) {
    void* pointer = nullptr;
    EXPECT_EQ(cuda::cudaMalloc(&pointer, values.size() * sizeof(Type)), cuda::kSuccess);
    EXPECT_EQ(fakegpu_poke(pointer, values.data(), values.size() * sizeof(Type)), 0);
    return static_cast<Type*>(pointer);
  }
  template <class Type>
  static std::vector<Type> download(const Type* pointer, std::size_t count) {
    std::vector<Type> values(count);
    EXPECT_EQ(fakegpu_peek(pointer, values.data(), count * sizeof(Type)), 0);
    return values;
  }
  static void drop(void* pointer) { EXPECT_EQ(cuda::cudaFree(pointer), cuda::kSuccess); }
};

// Calls `body` on a thread per rank, rank r with device r and a stream.
inline void run_ranks(int size, const std::function<void(Rank&)>& body) {
  nccl::UniqueId id;
  ASSERT_EQ(nccl::ncclGetUniqueId(&id), nccl::kSuccess);
  std::vector<std::thread> threads;
  for (int number = 0; number < size; ++number) {
    threads.emplace_back([number, size, &id, &body] {
      Rank rank{number, size, nullptr, nullptr, id};
      ASSERT_EQ(cuda::cudaSetDevice(number), cuda::kSuccess);
      ASSERT_EQ(cuda::cudaStreamCreateWithPriority(&rank.stream, cuda::kStreamNonBlocking, 0),
                cuda::kSuccess);
      body(rank);
      EXPECT_EQ(cuda::cudaStreamDestroy(rank.stream), cuda::kSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The same with communicators that are made before, and destroyed after `body`.
inline void run_communicators(int size, const std::function<void(Rank&)>& body) {
  run_ranks(size, [&body](Rank& rank) {
    ASSERT_EQ(rank.begin(), nccl::kSuccess) << nccl::ncclGetLastError(nullptr);
    body(rank);
    if (rank.comm == nullptr) return;
    EXPECT_EQ(rank.synchronize(), cuda::kSuccess);
    EXPECT_EQ(nccl::ncclCommDestroy(rank.comm), nccl::kSuccess);
  });
}

// Every case ends as it began: no handle, no misuse, no fault.
class FakeNcclTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(fakegpu_census(nullptr), 0); }
  void TearDown() override {
    EXPECT_EQ(fakegpu_set_faults(""), 0);
    EXPECT_EQ(fakegpu_census(nullptr), 0);
    EXPECT_EQ(fakegpu_misuses(), 0) << fakegpu_misuse_text(0);
  }
};

}  // namespace fakegpu
