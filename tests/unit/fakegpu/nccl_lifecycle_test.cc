// The fake NCCL's communicators: begin, non-blocking use, abort, shrink, misuse, planned faults.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>

#include "tests/unit/fakegpu/ranks.h"

namespace fakegpu {
namespace {

using FakeNcclLifecycle = FakeNcclTest;

int all_reduce(const Rank& rank, float* data, std::size_t count = 10) {
  return nccl::ncclAllReduce(data, data, count, nccl::kFloat32, nccl::kSum, rank.comm, rank.stream);
}

TEST_F(FakeNcclLifecycle, NonBlockingCommunicatorsSayWhenTheyAreReady) {
  run_ranks(2, [](Rank& rank) {
    ASSERT_EQ(rank.begin(0), nccl::kInProgress);
    ASSERT_NE(rank.comm, nullptr);
    EXPECT_EQ(rank.settle(), nccl::kSuccess);
    float* data = Rank::upload(std::vector<float>(10, 1));
    EXPECT_EQ(all_reduce(rank, data), nccl::kInProgress) << "launched by and by";
    EXPECT_EQ(rank.settle(), nccl::kSuccess);
    EXPECT_EQ(rank.synchronize(), 0);
    EXPECT_EQ(Rank::download(data, 10)[9], 2.0f);
    EXPECT_EQ(nccl::ncclCommFinalize(rank.comm), nccl::kInProgress);
    EXPECT_EQ(rank.settle(), nccl::kSuccess);
    EXPECT_EQ(nccl::ncclCommDestroy(rank.comm), nccl::kSuccess);
    Rank::drop(data);
  });
}

TEST_F(FakeNcclLifecycle, UseBeforeItIsReadyIsMisuse) {
  nccl::UniqueId id;
  ASSERT_EQ(nccl::ncclGetUniqueId(&id), 0);
  Rank rank{0, 2, nullptr, nullptr, id};
  ASSERT_EQ(cuda::cudaSetDevice(0), 0);
  ASSERT_EQ(rank.begin(0), nccl::kInProgress);
  int size = 0;
  EXPECT_EQ(nccl::ncclCommCount(rank.comm, &size), nccl::kInvalidArgument);
  EXPECT_EQ(fakegpu_misuses(), 1);
  fakegpu_forgive_misuses();
  EXPECT_EQ(nccl::ncclCommAbort(rank.comm), 0) << "the other rank never comes";
}

TEST_F(FakeNcclLifecycle, AbortWakesWhatIsStuck) {
  run_ranks(2, [](Rank& rank) {
    ASSERT_EQ(rank.begin(), 0);
    float* data = Rank::upload(std::vector<float>(10, 1));
    cuda::EventHandle event = nullptr;
    EXPECT_EQ(cuda::cudaEventCreateWithFlags(&event, cuda::kEventDisableTiming), 0);
    if (rank.rank == 0) {  // rank 1 never arrives
      EXPECT_EQ(all_reduce(rank, data), 0);
      EXPECT_EQ(cuda::cudaEventRecord(event, rank.stream), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(cuda::cudaEventQuery(event), cuda::kNotReady);
      const nccl::CommHandle comm = rank.comm;
      std::thread aborter([comm] { EXPECT_EQ(nccl::ncclCommAbort(comm), 0); });
      EXPECT_EQ(cuda::cudaEventSynchronize(event), 0);
      aborter.join();
    } else {
      EXPECT_EQ(nccl::ncclCommAbort(rank.comm), 0);
    }
    EXPECT_EQ(cuda::cudaEventDestroy(event), 0);
    Rank::drop(data);
  });
}

TEST_F(FakeNcclLifecycle, UseAfterTheEndIsMisuse) {
  run_communicators(1, [](Rank& rank) {
    const nccl::CommHandle comm = std::exchange(rank.comm, nullptr);
    EXPECT_EQ(nccl::ncclCommAbort(comm), 0);
    EXPECT_EQ(nccl::ncclCommAbort(comm), nccl::kInvalidArgument);
    int size = 0;
    EXPECT_EQ(nccl::ncclCommCount(comm, &size), nccl::kInvalidArgument);
    EXPECT_EQ(nccl::ncclCommDestroy(comm), nccl::kInvalidArgument);
    EXPECT_EQ(fakegpu_misuses(), 3);
  });
  fakegpu_forgive_misuses();
}

TEST_F(FakeNcclLifecycle, DestroyWithWorkInFlightIsMisuse) {
  run_ranks(2, [](Rank& rank) {
    ASSERT_EQ(rank.begin(), 0);
    float* data = Rank::upload(std::vector<float>(10, 1));
    if (rank.rank == 0) {
      EXPECT_EQ(all_reduce(rank, data), 0);
    }
    EXPECT_EQ(nccl::ncclCommDestroy(rank.comm), 0);
    Rank::drop(data);
  });
  EXPECT_EQ(fakegpu_misuses(), 1);
  fakegpu_forgive_misuses();
}

TEST_F(FakeNcclLifecycle, ADifferenceBetweenRanksIsMisuse) {
  run_ranks(2, [](Rank& rank) {
    ASSERT_EQ(rank.begin(), 0);
    float* data = Rank::upload(std::vector<float>(10, 1));
    EXPECT_EQ(all_reduce(rank, data, rank.rank == 0 ? 10 : 9), 0);
    int error = 0;
    for (int turn = 0; turn < 10000 && error == 0; ++turn) {
      EXPECT_EQ(nccl::ncclCommGetAsyncError(rank.comm, &error), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(error, nccl::kInternalError);
    EXPECT_EQ(nccl::ncclCommAbort(rank.comm), 0);
    EXPECT_EQ(rank.synchronize(), 0);
    EXPECT_EQ(Rank::download(data, 10)[0], 1.0f);
    Rank::drop(data);
  });
  EXPECT_EQ(fakegpu_misuses(), 2);
  EXPECT_NE(std::string(fakegpu_misuse_text(0)).find("of 9 elements"), std::string::npos);
  fakegpu_forgive_misuses();
}

TEST_F(FakeNcclLifecycle, AReceiveOfAnotherSizeIsMisuse) {
  run_ranks(2, [](Rank& rank) {
    ASSERT_EQ(rank.begin(), 0);
    float* data = Rank::upload(std::vector<float>(10, 1));
    if (rank.rank == 0) {
      EXPECT_EQ(nccl::ncclSend(data, 10, 7, 1, rank.comm, rank.stream), 0);
      EXPECT_EQ(rank.synchronize(), 0);
    } else {
      EXPECT_EQ(nccl::ncclRecv(data, 9, 7, 0, rank.comm, rank.stream), 0);
      int error = 0;
      for (int turn = 0; turn < 10000 && error == 0; ++turn) {
        EXPECT_EQ(nccl::ncclCommGetAsyncError(rank.comm, &error), 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_EQ(error, nccl::kInternalError);
    }
    EXPECT_EQ(nccl::ncclCommAbort(rank.comm), 0);
    EXPECT_EQ(rank.synchronize(), 0);
    Rank::drop(data);
  });
  EXPECT_EQ(fakegpu_misuses(), 1);
  fakegpu_forgive_misuses();
}

TEST_F(FakeNcclLifecycle, ACaptureTakesCollectivesIn) {
  run_communicators(1, [](Rank& rank) {
    float* data = Rank::upload(std::vector<float>(10, 1));
    const long captured = fakegpu_calls("captured");
    const long done = fakegpu_calls("collective");
    EXPECT_EQ(cuda::cudaStreamBeginCapture(rank.stream, 2), 0);
    EXPECT_EQ(all_reduce(rank, data), 0);
    cuda::GraphHandle graph = nullptr;
    EXPECT_EQ(cuda::cudaStreamEndCapture(rank.stream, &graph), 0);
    EXPECT_EQ(cuda::cudaGraphDestroy(graph), 0);
    EXPECT_EQ(rank.synchronize(), 0);
    EXPECT_EQ(fakegpu_calls("captured"), captured + 1);
    EXPECT_EQ(fakegpu_calls("collective"), done);
    Rank::drop(data);
  });
}

std::ptrdiff_t count_entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

TEST_F(FakeNcclLifecycle, NoFileAndNoThreadIsLeft) {
  const std::ptrdiff_t files = count_entries("/proc/self/fd");
  for (int round = 0; round < 5; ++round) {
    run_communicators(3, [](Rank& rank) {
      float* data = Rank::upload(std::vector<float>(10, 1));
      EXPECT_EQ(all_reduce(rank, data), 0);
      EXPECT_EQ(rank.synchronize(), 0);
      Rank::drop(data);
    });
  }
  // Threads of destroyed streams end by and by; those of the other cases are gone, or go as well.
  for (int turn = 0; turn < 5000 && count_entries("/proc/self/task") > 4; ++turn) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LE(count_entries("/proc/self/task"), 4) << "this one, default streams, a sanitizer's";
  EXPECT_EQ(count_entries("/proc/self/fd"), files);
}

TEST_F(FakeNcclLifecycle, AnotherThreadInAnOpenGroupIsMisuse) {
  run_communicators(1, [](Rank& rank) {
    float* data = Rank::upload(std::vector<float>(10, 1));
    EXPECT_EQ(nccl::ncclGroupStart(), 0);
    EXPECT_EQ(all_reduce(rank, data), 0);
    std::thread([&] {
      int size = 0;
      EXPECT_EQ(nccl::ncclCommCount(rank.comm, &size), nccl::kInvalidUsage);
    }).join();
    EXPECT_EQ(nccl::ncclGroupEnd(), 0);
    EXPECT_EQ(fakegpu_misuses(), 1);
    fakegpu_forgive_misuses();
    EXPECT_EQ(rank.synchronize(), 0);
    Rank::drop(data);
  });
}

TEST_F(FakeNcclLifecycle, WrongArgumentsAreRefused) {
  run_communicators(1, [](Rank& rank) {
    float* data = Rank::upload(std::vector<float>(10, 1));
    const auto reduce = [&](int dtype, int op) {
      return nccl::ncclAllReduce(data, data, 10, dtype, op, rank.comm, rank.stream);
    };
    EXPECT_EQ(reduce(12, 0), nccl::kInvalidArgument);
    EXPECT_EQ(reduce(7, 5), nccl::kInvalidArgument);
    EXPECT_EQ(nccl::ncclBroadcast(data, data, 10, 7, 1, rank.comm, rank.stream),
              nccl::kInvalidArgument);
    EXPECT_EQ(nccl::ncclGroupStart(), 0);
    EXPECT_EQ(reduce(7, 0), 0);
    EXPECT_EQ(reduce(12, 0), nccl::kInvalidArgument);
    EXPECT_EQ(nccl::ncclGroupEnd(), nccl::kInvalidArgument) << "nothing of it is launched";
    nccl::CommHandle comm = nullptr;
    nccl::CommConfig config;
    config.magic = 1;
    EXPECT_EQ(nccl::ncclCommInitRankConfig(&comm, 1, rank.id, 0, &config), nccl::kInvalidArgument);
    EXPECT_EQ(nccl::ncclCommInitRank(&comm, 1, nccl::UniqueId(), 0), nccl::kInvalidArgument);
    EXPECT_EQ(comm, nullptr);
    Rank::drop(data);
  });
}

TEST_F(FakeNcclLifecycle, TwoRanksOnOneDeviceAreRefused) {
  nccl::UniqueId id;
  ASSERT_EQ(nccl::ncclGetUniqueId(&id), 0);
  std::vector<std::thread> threads;
  for (int number = 0; number < 2; ++number) {
    threads.emplace_back([number, &id] {
      Rank rank{number, 2, nullptr, nullptr, id};
      EXPECT_EQ(rank.begin(), nccl::kInvalidUsage);
      EXPECT_NE(std::string(nccl::ncclGetLastError(nullptr)).find("Duplicate GPU"),
                std::string::npos);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(FakeNcclLifecycle, ShrinkLeavesARankOut) {
  run_ranks(3, [](Rank& rank) {
    ASSERT_EQ(rank.begin(), 0);
    float* data = Rank::upload(std::vector<float>(10, static_cast<float>(rank.rank + 1)));
    if (rank.rank == 1) {  // it is stuck for good, and leaves
      EXPECT_EQ(nccl::ncclCommAbort(rank.comm), 0);
      Rank::drop(data);
      return;
    }
    EXPECT_EQ(all_reduce(rank, data), 0);
    int excluded[] = {1};
    nccl::CommHandle smaller = nullptr;
    EXPECT_EQ(nccl::ncclCommShrink(rank.comm, excluded, 1, &smaller, nullptr, nccl::kShrinkAbort),
              0);
    EXPECT_EQ(rank.synchronize(), 0);
    EXPECT_EQ(nccl::ncclCommAbort(rank.comm), 0);
    int size = 0;
    int number = -1;
    EXPECT_EQ(nccl::ncclCommCount(smaller, &size), 0);
    EXPECT_EQ(nccl::ncclCommUserRank(smaller, &number), 0);
    EXPECT_EQ(size, 2);
    EXPECT_EQ(number, rank.rank / 2);
    EXPECT_EQ(nccl::ncclAllReduce(data, data, 10, 7, 0, smaller, rank.stream), 0);
    EXPECT_EQ(rank.synchronize(), 0);
    EXPECT_EQ(Rank::download(data, 10)[9], 4.0f);
    EXPECT_EQ(nccl::ncclCommDestroy(smaller), 0);
    Rank::drop(data);
  });
}

TEST_F(FakeNcclLifecycle, AnInitialisationThatHangsIsAborted) {
  ASSERT_EQ(fakegpu_set_faults("ncclCommInitRankConfig:1:hang"), 0);
  nccl::UniqueId id;
  ASSERT_EQ(nccl::ncclGetUniqueId(&id), 0);
  Rank rank{0, 1, nullptr, nullptr, id};
  ASSERT_EQ(cuda::cudaSetDevice(0), 0);
  ASSERT_EQ(rank.begin(0), nccl::kInProgress);
  int error = 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(nccl::ncclCommGetAsyncError(rank.comm, &error), 0);
  EXPECT_EQ(error, nccl::kInProgress);
  EXPECT_EQ(nccl::ncclCommAbort(rank.comm), 0);
}

TEST_F(FakeNcclLifecycle, AnAsynchronousErrorComesAsPlanned) {
  ASSERT_EQ(fakegpu_set_faults("comm:3:async-error"), 0);
  run_communicators(1, [](Rank& rank) {
    float* data = Rank::upload(std::vector<float>(10, 1));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(all_reduce(rank, data), 0);
    EXPECT_EQ(rank.synchronize(), 0);
    int error = -1;
    EXPECT_EQ(nccl::ncclCommGetAsyncError(rank.comm, &error), 0);
    EXPECT_EQ(error, 0);
    EXPECT_EQ(all_reduce(rank, data), 0);
    for (int turn = 0; turn < 10000 && error == 0; ++turn) {
      EXPECT_EQ(nccl::ncclCommGetAsyncError(rank.comm, &error), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(error, nccl::kRemoteError);
    EXPECT_EQ(cuda::cudaStreamQuery(rank.stream), cuda::kNotReady) << "stuck until the abort";
    EXPECT_EQ(all_reduce(rank, data), nccl::kRemoteError);
    EXPECT_EQ(nccl::ncclCommAbort(std::exchange(rank.comm, nullptr)), 0);
    EXPECT_EQ(rank.synchronize(), 0);
    Rank::drop(data);
  });
}

TEST_F(FakeNcclLifecycle, ACallFailsAsPlanned) {
  ASSERT_EQ(fakegpu_set_faults("ncclAllReduce:2:error:2"), 0);
  run_communicators(1, [](Rank& rank) {
    float* data = Rank::upload(std::vector<float>(10, 1));
    EXPECT_EQ(all_reduce(rank, data), 0);
    EXPECT_EQ(all_reduce(rank, data), nccl::kSystemError);
    EXPECT_EQ(all_reduce(rank, data), 0);
    EXPECT_EQ(rank.synchronize(), 0);
    Rank::drop(data);
  });
}

}  // namespace
}  // namespace fakegpu
