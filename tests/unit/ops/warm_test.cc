// Operations allocate nothing once warm, whatever their algorithm: counted at operator new.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "ops/operation_set.h"
#include "tests/conformance/hosts_job.h"
#include "tests/unit/count_allocations.h"
#include "transport/inproc/inproc_channel.h"

namespace kolo::internal {
namespace {

constexpr int kRanks = 3;

class Warm : public testing::Test {
 protected:
  Warm() : network_(kRanks) {
    for (int rank = 0; rank < kRanks; ++rank) {
      channels_.push_back(std::move(network_.channels(rank)[0]));
      for (auto& channel : channels_.back())
        rows_[static_cast<std::size_t>(rank)].push_back(channel.get());
    }
  }

  // Starts and drives one collective on all ranks; the allocations that took.
  template <typename Start>
  std::size_t allocations_of(const Start& start) {
    ++sequence_;
    const std::size_t before = allocations_so_far();
    std::array<Operation*, kRanks> operations{};
    for (std::size_t r = 0; r < kRanks; ++r) {
      operations[r] = &start(sets_[r], Communicator{.rank = static_cast<int>(r),
                                                    .size = kRanks,
                                                    .channels = rows_[r],
                                                    .order = &order_,
                                                    .sequence = sequence_});
    }
    int done = 0;
    for (int turn = 0; done < kRanks && turn < 100000; ++turn) {
      done = 0;
      for (Operation* operation : operations) {
        const Result<Progress> progress = operation->advance();
        done += progress.is_ok() && *progress == Progress::kDone ? 1 : 0;
      }
    }
    EXPECT_EQ(done, kRanks);
    return allocations_so_far() - before;
  }

  InprocNetwork network_;
  std::vector<std::vector<std::unique_ptr<Channel>>> channels_;
  std::array<std::vector<Channel*>, kRanks> rows_;
  std::array<OperationSet, kRanks> sets_;
  const ReductionOrder order_ = ReductionOrder::single_host(kRanks);
  std::uint32_t sequence_ = 0;
};

TEST_F(Warm, CollectivesAllocateNothingTheSecondTime) {
  std::array<std::vector<std::uint16_t>, kRanks> data;
  std::array<std::vector<std::uint16_t>, kRanks> out;
  for (std::size_t r = 0; r < kRanks; ++r) {
    data[r].resize(300000);
    out[r].resize(300000 * kRanks);
  }
  const std::array<std::size_t, kRanks> blocks = {299000, 0, 1000}, equal = {7000, 7000, 7000};
  const auto allreduce = [&](Algorithm algorithm, std::size_t pieces) {
    return [&, algorithm, pieces](OperationSet& set, const Communicator& c) -> Operation& {
      std::array<Piece, 8> list;
      auto& mine = data[static_cast<std::size_t>(c.rank)];
      const std::size_t count = mine.size() / pieces;
      for (std::size_t p = 0; p < pieces; ++p) {
        list[p] = {.input = &mine[p * count], .output = &mine[p * count], .count = count};
      }
      return set.start_allreduce(algorithm, c, {list.data(), pieces},
                                 {DataType::kFloat16, ReduceOp::kSum});
    };
  };
  const auto all = [&] {
    std::size_t total = 0;
    for (Algorithm algorithm : {Algorithm::kOneshot, Algorithm::kDirect, Algorithm::kRing}) {
      for (std::size_t pieces : {1u, 8u}) total += allocations_of(allreduce(algorithm, pieces));
    }
    for (Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
      total += allocations_of([&](OperationSet& set, const Communicator& c) -> Operation& {
        const auto r = static_cast<std::size_t>(c.rank);
        const Piece piece{.input = data[r].data(), .output = out[r].data(), .count = 300000};
        return set.start_reduce_scatter(algorithm, c, piece, blocks,
                                        {DataType::kFloat16, ReduceOp::kSum});
      });
      total += allocations_of([&](OperationSet& set, const Communicator& c) -> Operation& {
        const auto r = static_cast<std::size_t>(c.rank);
        return set.start_allgather(algorithm, c, data[r].data(), out[r].data(), blocks);
      });
    }
    total += allocations_of([&](OperationSet& set, const Communicator& c) -> Operation& {
      const auto r = static_cast<std::size_t>(c.rank);
      return set.start_alltoall(c, data[r].data(), out[r].data(), equal, equal);
    });
    total += allocations_of([&](OperationSet& set, const Communicator& c) -> Operation& {
      auto& mine = data[static_cast<std::size_t>(c.rank)];
      return set.start_broadcast(c, 1, mine.data(), mine.data(), mine.size() * 2);
    });
    total += allocations_of([](OperationSet& set, const Communicator& c) -> Operation& {
      return set.start_barrier(c);
    });
    return total;
  };
  EXPECT_GT(all(), 0) << "the counter counts";
  EXPECT_EQ(all(), 0);
}

// Three ranks on two hosts, or four on one: windows, lanes and channels.
class WarmHosts : public testing::TestWithParam<std::vector<int>> {
 protected:
  WarmHosts() : job_(GetParam(), 1, TensorsIn::kArena, {}) {}

  template <typename Start>
  std::size_t allocations_of(const Start& start) {
    const auto n = static_cast<std::size_t>(job_.size());
    const std::size_t before = allocations_so_far();
    std::array<Operation*, 4> operations{};
    for (std::size_t r = 0; r < n; ++r) operations[r] = &start(r);
    std::size_t done = 0;
    for (int turn = 0; done < n && turn < 100000; ++turn) {
      done = 0;
      for (std::size_t r = 0; r < n; ++r) {
        const Result<Progress> progress = operations[r]->advance();
        done += progress.is_ok() && *progress == Progress::kDone ? 1u : 0u;
      }
    }
    EXPECT_EQ(done, n);
    return allocations_so_far() - before;
  }

  HostsJob job_;
};

TEST_P(WarmHosts, CollectivesAllocateNothingTheSecondTime) {
  const auto n = static_cast<std::size_t>(job_.size());
  constexpr std::size_t kCount = 200000;
  std::vector<std::uint16_t*> data, out, heap;
  std::vector<std::vector<std::uint16_t>> memory(n, std::vector<std::uint16_t>(kCount));
  for (std::size_t r = 0; r < n; ++r) {
    data.push_back(reinterpret_cast<std::uint16_t*>(job_.memory(r, kCount * 2)));
    out.push_back(reinterpret_cast<std::uint16_t*>(job_.memory(r, kCount * 2 * n)));
    heap.push_back(memory[r].data());
  }
  const auto allreduce = [&](const std::vector<std::uint16_t*>& tensors, std::size_t count,
                             std::size_t pieces) {
    return [&, count, pieces](std::size_t r) -> Operation& {
      std::array<Piece, 8> list;
      for (std::size_t p = 0; p < pieces; ++p) {
        std::uint16_t* piece = tensors[r] + p * (count / pieces);
        list[p] = {.input = piece, .output = piece, .count = count / pieces};
      }
      return job_.allreduce(r, Algorithm::kDirect, {list.data(), pieces},
                            {DataType::kFloat16, ReduceOp::kSum});
    };
  };
  const auto all = [&] {
    std::size_t total = 0;
    for (std::size_t pieces : {1u, 8u}) {
      for (std::size_t count : {std::size_t{100}, kCount}) {
        total += allocations_of(allreduce(data, count, pieces));
        total += allocations_of(allreduce(heap, count, pieces));
      }
    }
    for (std::size_t bytes : {std::size_t{64}, kCount * 2}) {
      total += allocations_of(
          [&](std::size_t r) -> Operation& { return job_.allgather(r, data[r], out[r], bytes); });
      total += allocations_of([&](std::size_t r) -> Operation& {
        return job_.broadcast(r, 1, heap[r], heap[r], bytes);
      });
      // Ragged: the last rank's block is the rest, the second's is empty.
      std::array<std::size_t, 4> blocks{}, equal{};
      blocks[0] = bytes / 4;
      blocks[n - 1] = bytes / 2 - blocks[0];
      equal.fill(bytes / 8);
      for (const auto& tensors : {data, heap}) {
        total += allocations_of([&](std::size_t r) -> Operation& {
          const Piece piece{.input = tensors[r], .output = out[r], .count = bytes / 2};
          return job_.reduce_scatter(r, Algorithm::kDirect, piece, std::span(blocks).first(n),
                                     {DataType::kFloat16, ReduceOp::kSum});
        });
        total += allocations_of([&](std::size_t r) -> Operation& {
          return job_.allgather(r, Algorithm::kDirect, tensors[r], out[r],
                                std::span(blocks).first(n));
        });
        total += allocations_of([&](std::size_t r) -> Operation& {
          return job_.alltoall(r, tensors[r], out[r], std::span(equal).first(n),
                               std::span(equal).first(n));
        });
      }
    }
    total += allocations_of([&](std::size_t r) -> Operation& { return job_.barrier(r); });
    return total;
  };
  EXPECT_GT(all(), 0) << "the counter counts";
  EXPECT_EQ(all(), 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, WarmHosts,
                         testing::Values(std::vector{0, 0, 0, 0}, std::vector{0, 0, 1},
                                         std::vector{0, 1, 0, 1}));

}  // namespace
}  // namespace kolo::internal
