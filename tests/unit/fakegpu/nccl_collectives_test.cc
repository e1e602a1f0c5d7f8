// The fake NCCL's collectives, sends and receives, against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/fakegpu/nccl/numbers.h"
#include "tests/unit/fakegpu/ranks.h"

namespace fakegpu {
namespace {

using FakeNcclCollectives = FakeNcclTest;

constexpr std::size_t kCounts[] = {1, 3, 1000, 200003};  // the last is more than a slot holds

float value_of(int rank, std::size_t i) {
  return static_cast<float>(rank + 1 + static_cast<int>(i % 7));
}

std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_of(rank, i);
  return values;
}

float reduced(int op, int size, std::size_t i) {
  float result = value_of(0, i);
  for (int rank = 1; rank < size; ++rank) {
    const float next = value_of(rank, i);
    if (op == nccl::kProd) {
      result *= next;
    } else if (op == nccl::kMax) {
      result = std::max(result, next);
    } else if (op == nccl::kMin) {
      result = std::min(result, next);
    } else {
      result += next;
    }
  }
  return op == nccl::kAvg ? result / static_cast<float>(size) : result;
}

TEST_F(FakeNcclCollectives, AllReduceInEveryOperation) {
  run_communicators(4, [](Rank& rank) {
    for (const std::size_t count : kCounts) {
      for (int op = nccl::kSum; op <= nccl::kAvg; ++op) {
        float* data = Rank::upload(values_of(rank.rank, count));
        EXPECT_EQ(
            nccl::ncclAllReduce(data, data, count, nccl::kFloat32, op, rank.comm, rank.stream),
            nccl::kSuccess);
        EXPECT_EQ(rank.synchronize(), 0);
        const std::vector<float> result = Rank::download(data, count);
        for (std::size_t i = 0; i < count; i += 1 + count / 100) {
          EXPECT_EQ(result[i], reduced(op, 4, i)) << "op " << op << ", element " << i;
        }
        Rank::drop(data);
      }
    }
  });
}

TEST_F(FakeNcclCollectives, ReduceBroadcastGatherAndScatter) {
  run_communicators(3, [](Rank& rank) {
    const auto size = static_cast<std::size_t>(rank.size);
    for (const std::size_t count : kCounts) {
      float* one = Rank::upload(values_of(rank.rank, count));
      float* all = Rank::upload(values_of(rank.rank, count * size));
      float* out = Rank::upload(std::vector<float>(count * size, -1));
      EXPECT_EQ(nccl::ncclReduce(one, out, count, 7, nccl::kSum, 1, rank.comm, rank.stream), 0);
      EXPECT_EQ(rank.synchronize(), 0);
      EXPECT_EQ(Rank::download(out, count)[count - 1],
                rank.rank == 1 ? reduced(nccl::kSum, 3, count - 1) : -1.0f);
      EXPECT_EQ(nccl::ncclBroadcast(one, out, count, 7, 2, rank.comm, rank.stream), 0);
      EXPECT_EQ(rank.synchronize(), 0);
      EXPECT_EQ(Rank::download(out, count), values_of(2, count));
      EXPECT_EQ(nccl::ncclAllGather(one, out, count, 7, rank.comm, rank.stream), 0);
      EXPECT_EQ(rank.synchronize(), 0);
      for (std::size_t other = 0; other < size; ++other) {
        EXPECT_EQ(Rank::download(out + other * count, count),
                  values_of(static_cast<int>(other), count));
      }
      EXPECT_EQ(nccl::ncclReduceScatter(all, out, count, 7, nccl::kMax, rank.comm, rank.stream), 0);
      EXPECT_EQ(rank.synchronize(), 0);
      const std::vector<float> part = Rank::download(out, count);
      for (std::size_t i = 0; i < count; i += 1 + count / 100) {
        EXPECT_EQ(part[i], reduced(nccl::kMax, 3, static_cast<std::size_t>(rank.rank) * count + i));
      }
      for (float* pointer : {one, all, out}) Rank::drop(pointer);
    }
  });
}

// Small whole numbers are exact in every type; the average is one, too.
TEST_F(FakeNcclCollectives, EveryType) {
  run_communicators(2, [](Rank& rank) {
    for (int dtype = 0; dtype <= nccl::kFloat8E5m2; ++dtype) {
      const std::size_t element = size_of_type(dtype);
      // 1 and 3 in the type, made from its own arithmetic: x = 1; x = x + x + x.
      std::vector<std::byte> one(element);
      const std::uint64_t integer = 1;
      const double real = 1;
      const float single = 1;
      const std::uint16_t half = dtype == nccl::kBfloat16 ? 0x3f80 : 0x3c00;
      const std::uint8_t quarter = dtype == nccl::kFloat8E4m3 ? 0x38 : 0x3c;
      const void* source = &integer;
      if (dtype == nccl::kFloat64) source = &real;
      if (dtype == nccl::kFloat32) source = &single;
      if (dtype == nccl::kFloat16 || dtype == nccl::kBfloat16) source = &half;
      if (dtype >= nccl::kFloat8E4m3) source = &quarter;
      std::memcpy(one.data(), source, element);
      std::vector<std::byte> value = one;
      std::vector<std::byte> two = one;
      reduce_arrays(dtype, nccl::kSum, two.data(), one.data(), 1);
      if (rank.rank == 1) reduce_arrays(dtype, nccl::kSum, value.data(), two.data(), 1);
      std::byte* data = Rank::upload(value);
      EXPECT_EQ(nccl::ncclAllReduce(data, data, 1, dtype, nccl::kAvg, rank.comm, rank.stream), 0);
      EXPECT_EQ(rank.synchronize(), 0);
      EXPECT_EQ(Rank::download(data, element), two) << "(1 + 3) / 2 in type " << dtype;
      Rank::drop(data);
    }
  });
}

TEST_F(FakeNcclCollectives, FactorsOfTheHostAndOfTheDevice) {
  run_communicators(2, [](Rank& rank) {
    float factor = rank.rank == 0 ? 0.5f : 2.0f;
    float* data = Rank::upload(std::vector<float>(10, 8.0f));
    float* on_device = Rank::upload(std::vector<float>(1, 0.25f));
    int host_op = 0;
    int device_op = 0;
    EXPECT_EQ(nccl::ncclRedOpCreatePreMulSum(&host_op, &factor, 7, nccl::kScalarOnHost, rank.comm),
              0);
    EXPECT_EQ(
        nccl::ncclRedOpCreatePreMulSum(&device_op, on_device, 7, nccl::kScalarOnDevice, rank.comm),
        0);
    EXPECT_EQ(nccl::ncclAllReduce(data, data, 10, 7, host_op, rank.comm, rank.stream), 0);
    EXPECT_EQ(nccl::ncclAllReduce(data, data, 10, 7, device_op, rank.comm, rank.stream), 0);
    EXPECT_EQ(nccl::ncclRedOpDestroy(host_op, rank.comm), 0);
    EXPECT_EQ(nccl::ncclAllReduce(data, data, 10, 7, host_op, rank.comm, rank.stream),
              nccl::kInvalidArgument)
        << "destroyed";
    EXPECT_EQ(rank.synchronize(), 0);
    EXPECT_EQ(Rank::download(data, 10)[9], (4.0f + 16.0f) / 2);
    EXPECT_EQ(nccl::ncclRedOpDestroy(device_op, rank.comm), 0);
    for (float* pointer : {data, on_device}) Rank::drop(pointer);
  });
}

TEST_F(FakeNcclCollectives, AGroupOfSendsAndReceivesIsAnAllToAll) {
  run_communicators(4, [](Rank& rank) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{5}, std::size_t{100000}}) {
      const auto size = static_cast<std::size_t>(rank.size);
      float* out = Rank::upload(values_of(rank.rank, count * size + 1));
      float* in = Rank::upload(std::vector<float>(count * size + 1, -1));
      EXPECT_EQ(nccl::ncclGroupStart(), 0);
      for (int peer = 0; peer < rank.size; ++peer) {
        const std::size_t at = static_cast<std::size_t>(peer) * count;
        EXPECT_EQ(nccl::ncclSend(out + at, count, 7, peer, rank.comm, rank.stream), 0);
        EXPECT_EQ(nccl::ncclRecv(in + at, count, 7, peer, rank.comm, rank.stream), 0);
      }
      EXPECT_EQ(nccl::ncclGroupEnd(), 0);
      EXPECT_EQ(rank.synchronize(), 0);
      const std::vector<float> result = Rank::download(in, count * size);
      for (std::size_t i = 0; i < result.size(); i += 1 + count / 50) {
        const int sender = static_cast<int>(i / count);
        EXPECT_EQ(result[i],
                  value_of(sender, static_cast<std::size_t>(rank.rank) * count + i % count));
      }
      for (float* pointer : {in, out}) Rank::drop(pointer);
    }
  });
}

TEST_F(FakeNcclCollectives, AGroupIsLaunchedAtItsEnd) {
  run_communicators(2, [](Rank& rank) {
    float* first = Rank::upload(std::vector<float>(100, 1));
    float* second = Rank::upload(std::vector<float>(100, 2));
    cuda::StreamHandle other = nullptr;
    EXPECT_EQ(cuda::cudaStreamCreateWithFlags(&other, cuda::kStreamNonBlocking), 0);
    EXPECT_EQ(nccl::ncclGroupStart(), 0);
    EXPECT_EQ(nccl::ncclGroupStart(), 0);
    EXPECT_EQ(nccl::ncclAllReduce(first, first, 100, 7, 0, rank.comm, rank.stream), 0);
    EXPECT_EQ(nccl::ncclGroupEnd(), 0);
    EXPECT_EQ(nccl::ncclAllReduce(second, second, 100, 7, 0, rank.comm, other), 0);
    EXPECT_EQ(rank.synchronize(), 0);
    EXPECT_EQ(Rank::download(first, 100)[0], 1.0f) << "not launched yet";
    EXPECT_EQ(nccl::ncclGroupEnd(), 0);
    EXPECT_EQ(cuda::cudaStreamSynchronize(other), 0) << "each stream goes on behind the launch";
    EXPECT_EQ(Rank::download(second, 100)[99], 4.0f);
    EXPECT_EQ(Rank::download(first, 100)[99], 2.0f);
    EXPECT_EQ(cuda::cudaStreamDestroy(other), 0);
    for (float* pointer : {first, second}) Rank::drop(pointer);
  });
}

TEST_F(FakeNcclCollectives, OneThreadWithTwoCommunicators) {
  nccl::UniqueId id;
  nccl::CommHandle comms[2] = {};
  float* data[2] = {};
  ASSERT_EQ(nccl::ncclGetUniqueId(&id), 0);
  ASSERT_EQ(nccl::ncclGroupStart(), 0);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(cuda::cudaSetDevice(rank), 0);
    ASSERT_EQ(nccl::ncclCommInitRank(&comms[rank], 2, id, rank), 0);
    data[rank] = Rank::upload(std::vector<float>(10, static_cast<float>(rank + 1)));
  }
  ASSERT_EQ(nccl::ncclGroupEnd(), 0);
  ASSERT_EQ(nccl::ncclGroupStart(), 0);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(nccl::ncclAllReduce(data[rank], data[rank], 10, 7, 0, comms[rank], nullptr), 0);
  }
  ASSERT_EQ(nccl::ncclGroupEnd(), 0);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(cuda::cudaSetDevice(rank), 0);
    EXPECT_EQ(cuda::cudaDeviceSynchronize(), 0);
    EXPECT_EQ(Rank::download(data[rank], 10)[9], 3.0f);
    Rank::drop(data[rank]);
    EXPECT_EQ(nccl::ncclCommDestroy(comms[rank]), 0);
  }
}

TEST_F(FakeNcclCollectives, MemoryOfTheLibraryAndRegistrations) {
  run_communicators(2, [](Rank& rank) {
    void* memory = nullptr;
    void* handle = nullptr;
    nccl::WindowHandle window = nullptr;
    ASSERT_EQ(nccl::ncclMemAlloc(&memory, 4000), 0);
    EXPECT_EQ(nccl::ncclCommRegister(rank.comm, memory, 4000, &handle), 0);
    EXPECT_EQ(nccl::ncclCommRegister(rank.comm, memory, 4001, &handle), nccl::kInvalidArgument);
    EXPECT_EQ(nccl::ncclCommWindowRegister(rank.comm, memory, 4000, &window, 1), 0);
    EXPECT_EQ(cuda::cudaMemsetAsync(memory, 0, 4000, rank.stream), 0);
    EXPECT_EQ(nccl::ncclAllReduce(memory, memory, 1000, 7, 0, rank.comm, rank.stream), 0);
    EXPECT_EQ(rank.synchronize(), 0);
    fakegpu_counts counts;
    EXPECT_GT(fakegpu_census(&counts), 0);
    EXPECT_GE(counts.nccl_buffers, 1);
    EXPECT_GE(counts.registrations, 2);
    EXPECT_EQ(nccl::ncclCommDeregister(rank.comm, handle), 0);
    EXPECT_EQ(nccl::ncclCommWindowDeregister(rank.comm, window), 0);
    EXPECT_EQ(nccl::ncclMemFree(memory), 0);
  });
}

}  // namespace
}  // namespace fakegpu
