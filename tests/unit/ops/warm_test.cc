// Operations allocate nothing once warm, whatever their algorithm: counted at operator new.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "ops/operation_set.h"
#include "transport/inproc/inproc_channel.h"

namespace {
std::atomic<long> g_allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  ++g_allocations;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 16); }
void* operator new[](std::size_t bytes) { return counted(bytes, 16); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }

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
  long allocations_of(const Start& start) {
    ++sequence_;
    const long before = g_allocations;
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
    return g_allocations - before;
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
  const auto allreduce = [&](Algorithm algorithm, std::size_t pieces) {
    return [&, algorithm, pieces](OperationSet& set, const Communicator& c) -> Operation& {
      std::array<Piece, 8> list;
      auto& mine = data[static_cast<std::size_t>(c.rank)];
      const std::size_t count = mine.size() / pieces;
      for (std::size_t p = 0; p < pieces; ++p) {
        list[p] = {.input = &mine[p * count], .output = &mine[p * count], .count = count};
      }
      return set.start_allreduce(algorithm, c, {list.data(), pieces}, DataType::kFloat16,
                                 ReduceOp::kSum);
    };
  };
  const auto all = [&] {
    long total = 0;
    for (Algorithm algorithm : {Algorithm::kOneshot, Algorithm::kDirect, Algorithm::kRing}) {
      for (std::size_t pieces : {1u, 8u}) total += allocations_of(allreduce(algorithm, pieces));
    }
    total += allocations_of([&](OperationSet& set, const Communicator& c) -> Operation& {
      const auto r = static_cast<std::size_t>(c.rank);
      return set.start_allgather(c, data[r].data(), out[r].data(), data[r].size() * 2);
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

}  // namespace
}  // namespace kolo::internal
