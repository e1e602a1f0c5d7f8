// Operations allocate nothing once warm, whatever their algorithm: counted at operator new.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "ops/operation_set.h"
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
    std::size_t total = 0;
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
