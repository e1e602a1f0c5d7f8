// Operations made of several collectives: the order of Adasum's pairs, giving up between two
// collectives, and no allocation once warm.
#include "ops/composed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <set>
#include <vector>

#include "ops/adasum.h"
#include "ops/collectives.h"
#include "tests/unit/count_allocations.h"
#include "transport/inproc/inproc_channel.h"

namespace kolo::internal {
namespace {

TEST(AdasumPairs, MakeOneVectorOfAllInAsFewLevelsAsCanBe) {
  for (std::size_t n = 1; n <= 70; ++n) {
    std::vector<std::set<std::size_t>> held(n);
    for (std::size_t r = 0; r < n; ++r) held[r] = {r};
    std::vector<int> busy(n, 0);  // the last level in which its vector took part
    int level = 0;
    for (const AdasumPair& pair : adasum_pairs(n)) {
      ASSERT_GE(pair.level, level);
      level = pair.level;
      ASSERT_LT(busy[pair.left], level) << "twice in a level";
      ASSERT_LT(busy[pair.right], level);
      busy[pair.left] = busy[pair.right] = level;
      ASSERT_EQ(*held[pair.left].rbegin() + 1, *held[pair.right].begin()) << "not neighbours";
      held[pair.left].merge(held[pair.right]);
    }
    EXPECT_EQ(held[0].size(), n);
    EXPECT_EQ(std::size_t{1} << level, std::bit_ceil(n));
  }
}

class Composed : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  Composed() : network_(kRanks) {
    for (int rank = 0; rank < kRanks; ++rank) {
      owned_.push_back(std::move(network_.channels(rank)[0]));
      std::vector<Channel*>& row = rows_.emplace_back();
      for (auto& channel : owned_.back()) row.push_back(channel.get());
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      collectives_.push_back(std::make_unique<ChannelCollectives>(
          Communicator{.rank = rank,
                       .size = kRanks,
                       .channels = rows_[static_cast<std::size_t>(rank)],
                       .order = &order_},
          AlgorithmChoice::kAuto));
    }
  }

  static void drive(const std::array<Operation*, kRanks>& operations) {
    int done = 0;
    for (int turn = 0; done < kRanks && turn < 100000; ++turn) {
      done = 0;
      for (Operation* operation : operations) {
        const Result<Progress> progress = operation->advance();
        ASSERT_TRUE(progress.is_ok()) << progress.status().to_string();
        done += *progress == Progress::kDone ? 1 : 0;
      }
    }
    ASSERT_EQ(done, kRanks);
  }

  std::uint64_t messages_sent(std::size_t rank) {
    std::uint64_t messages = 0;
    for (const Channel* channel : rows_[rank]) {
      if (channel != nullptr) messages += channel->counters().messages_sent;
    }
    return messages;
  }

  InprocNetwork network_;
  std::vector<std::vector<std::unique_ptr<Channel>>> owned_;
  std::vector<std::vector<Channel*>> rows_;
  const ReductionOrder order_ = ReductionOrder::single_host(kRanks);
  std::vector<std::unique_ptr<ChannelCollectives>> collectives_;
};

TEST_F(Composed, GivingUpBeforeTheFirstCollectiveSaysNothingToTheOthers) {
  std::vector<std::byte> values(std::size_t{4} << 20);
  const std::array<BroadcastPiece, 2> pieces = {
      BroadcastPiece{values.data(), values.data(), values.size() / 2},
      BroadcastPiece{values.data() + values.size() / 2, values.data() + values.size() / 2,
                     values.size() / 2}};
  Operation& broadcast = collectives_[0]->start_broadcast(1, 0, pieces);
  ASSERT_EQ(*broadcast.advance(), Progress::kMoved);  // packs
  broadcast.cancel();
  EXPECT_EQ(broadcast.advance().status().code(), StatusCode::kAborted);
  EXPECT_EQ(broadcast.advance().status().code(), StatusCode::kAborted);
  EXPECT_EQ(messages_sent(0), 0u);
}

TEST_F(Composed, GivingUpDuringACollectiveLeavesTheMemoryAlone) {
  std::vector<std::vector<float>> values(kRanks, std::vector<float>(1000000, 1.0F));
  std::vector<Adasum> operations(kRanks);
  for (std::size_t r = 0; r < kRanks; ++r) {
    const Piece piece{values[r].data(), values[r].data(), values[r].size()};
    operations[r].start(*collectives_[r], 1, piece, DataType::kFloat32);
  }
  for (int turn = 0; turn < 3; ++turn) {
    for (Adasum& operation : operations) ASSERT_TRUE(operation.advance().is_ok());
  }
  operations[0].cancel();
  std::fill(values[0].begin(), values[0].end(), 7.0F);
  EXPECT_EQ(operations[0].advance().status().code(), StatusCode::kAborted);
  for (int turn = 0; turn < 1000; ++turn) {
    for (std::size_t r = 1; r < kRanks; ++r) {
      const Result<Progress> progress = operations[r].advance();
      EXPECT_TRUE(!progress || *progress != Progress::kDone) << "done without rank 0";
    }
  }
  EXPECT_EQ(std::count(values[0].begin(), values[0].end(), 7.0F), std::ssize(values[0]));
}

TEST_F(Composed, OnceWarmTheyAllocateNothing) {
  std::array<std::vector<std::uint16_t>, kRanks> values;
  for (auto& vector : values) vector.assign(100000, 0x3c00);
  std::array<Adasum, kRanks> adasums;
  std::uint32_t sequence = 0;
  const auto allocations = [&] {
    const std::size_t before = allocations_so_far();
    std::array<Operation*, kRanks> operations{};
    ++sequence;
    for (std::size_t r = 0; r < kRanks; ++r) {
      const Piece piece{values[r].data(), values[r].data(), values[r].size()};
      adasums[r].start(*collectives_[r], sequence, piece, DataType::kFloat16);
      operations[r] = &adasums[r];
    }
    drive(operations);
    ++sequence;
    for (std::size_t r = 0; r < kRanks; ++r) {
      std::array<BroadcastPiece, 3> pieces;
      for (std::size_t p = 0; p < 3; ++p) {
        pieces[p] = {&values[r][p * 30000], &values[r][p * 30000], 50000 + p};
      }
      operations[r] = &collectives_[r]->start_broadcast(sequence, 1, pieces);
    }
    drive(operations);
    return allocations_so_far() - before;
  };
  EXPECT_GT(allocations(), 0u) << "the counter counts";
  EXPECT_EQ(allocations(), 0u);
}

}  // namespace
}  // namespace kolo::internal
