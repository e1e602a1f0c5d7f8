// Collectives from contributions that are at hand: the same bits as the ones that move them.
#include "ops/gathered.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ops/allreduce_oneshot.h"
#include "transport/inproc/inproc_channel.h"

namespace kolo::internal {
namespace {

constexpr std::uint64_t kSeed = 20240607;
constexpr std::size_t kBytesMax = 40;

struct Case {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::size_t count = 0;
};

std::string text_of(const Case& one) {
  return std::string(data_type_name(one.dtype)) + " " + std::string(reduce_op_name(one.op)) + ", " +
         std::to_string(one.count) + " elements, scales " + std::to_string(one.prescale) + " and " +
         std::to_string(one.postscale) + ", seed " + std::to_string(kSeed);
}

// All ranks of one job in this thread.
class Mesh {
 public:
  explicit Mesh(std::vector<int> hosts)
      : size_(hosts.size()), order_(hosts), network_(static_cast<int>(size_)) {
    for (std::size_t rank = 0; rank < size_; ++rank) {
      channels_.push_back(std::move(network_.channels(static_cast<int>(rank))[0]));
      rows_.emplace_back();
      for (auto& channel : channels_.back()) rows_.back().push_back(channel.get());
      operations_.push_back(std::make_unique<AllreduceOneshot>());
    }
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const ReductionOrder& order() const { return order_; }

  // The result of every rank, by the one-shot all-reduce.
  std::vector<std::string> oneshot(const Case& one, const std::vector<std::string>& inputs) {
    ++sequence_;
    std::vector<std::string> outputs;
    for (const std::string& input : inputs) outputs.emplace_back(input.size(), '\xee');
    for (std::size_t rank = 0; rank < size_; ++rank) {
      const Piece piece{inputs[rank].data(), outputs[rank].data(), one.count, one.prescale,
                        one.postscale};
      operations_[rank]->start({.rank = static_cast<int>(rank),
                                .size = static_cast<int>(size_),
                                .channels = rows_[rank],
                                .order = &order_,
                                .sequence = sequence_},
                               {&piece, 1}, {one.dtype, one.op});
    }
    std::size_t done = 0;
    for (int turn = 0; done < size_ && turn < 10000; ++turn) {
      done = 0;
      for (auto& operation : operations_) {
        const Result<Progress> progress = operation->advance();
        EXPECT_TRUE(progress.is_ok());
        done += progress.is_ok() && *progress == Progress::kDone ? 1U : 0U;
      }
    }
    EXPECT_EQ(done, size_);
    return outputs;
  }

 private:
  std::size_t size_;
  ReductionOrder order_;
  InprocNetwork network_;
  std::vector<std::vector<std::unique_ptr<Channel>>> channels_;
  std::vector<std::vector<Channel*>> rows_;
  std::vector<std::unique_ptr<AllreduceOneshot>> operations_;
  std::uint32_t sequence_ = 0;
};

// Any bits at all, but a bool is 0 or 1.
std::string random_bytes(std::size_t size, DataType dtype, std::mt19937_64& random) {
  std::string bytes;
  const unsigned mask = dtype == DataType::kBool ? 1 : 255;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(random() & mask);
  return bytes;
}

std::vector<const std::byte*> pointers_to(const std::vector<std::string>& contributions) {
  std::vector<const std::byte*> pointers;
  for (const std::string& each : contributions) {
    pointers.push_back(reinterpret_cast<const std::byte*>(each.data()));
  }
  return pointers;
}

class Gathered : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(TwoToFiveRanks, Gathered,
                         ::testing::Values(std::vector<int>{0, 0}, std::vector<int>{0, 1},
                                           std::vector<int>{0, 0, 0}, std::vector<int>{0, 1, 1},
                                           std::vector<int>{0, 0, 1, 1},
                                           std::vector<int>{0, 1, 0, 1, 1},
                                           std::vector<int>{0, 0, 0, 0, 0}));

TEST_P(Gathered, AnAllreduceGivesTheBitsOfTheOneshot) {
  Mesh mesh(GetParam());
  GatheredCollectives gathered;
  std::mt19937_64 random(kSeed);
  int compared = 0;
  const auto compare = [&](const Case& one) {
    const std::size_t size = one.count * element_bytes(one.dtype);
    std::vector<std::string> inputs;
    for (std::size_t rank = 0; rank < mesh.size(); ++rank) {
      inputs.push_back(random_bytes(size, one.dtype, random));
    }
    const std::vector<std::string> expected = mesh.oneshot(one, inputs);
    std::string result(size, '\xdd');
    gathered.allreduce(mesh.order(),
                       {nullptr, result.data(), one.count, one.prescale, one.postscale},
                       {one.dtype, one.op}, pointers_to(inputs));
    for (const std::string& each : expected) ASSERT_EQ(result, each) << text_of(one);
    ++compared;
  };
  for (int dtype = 0; dtype < kDataTypeCount; ++dtype) {
    Case one{.dtype = static_cast<DataType>(dtype)};
    for (int op = 0; op < kReduceOpCount; ++op) {
      one.op = static_cast<ReduceOp>(op);
      if (!can_reduce(one.dtype, one.op)) continue;
      const std::size_t most = kBytesMax / element_bytes(one.dtype);
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, most / 2, most}) {
        one.count = count;
        for (const auto& [before, after] :
             std::vector<std::pair<double, double>>{{1, 1}, {0.3, 1}, {1, -2.5}, {1.0 / 3, 7}}) {
          if (before * after != 1.0 && !is_floating(one.dtype)) continue;
          one.prescale = before;
          one.postscale = after;
          ASSERT_NO_FATAL_FAILURE(compare(one));
        }
      }
    }
  }
  constexpr int kCounts = 4;  // and as many scales, of floating types
  EXPECT_EQ(compared, (9 * kReduceOpCount - 1 + 4 * kReduceOpCount * 4) * kCounts)
      << "9 integer types, of which bool has no average, and 4 floating ones";
}

TEST_P(Gathered, AnAllgatherIsAllContributionsInOrderAndABroadcastTheRoots) {
  GatheredCollectives gathered;
  std::vector<std::string> inputs;
  std::string all;
  for (std::size_t rank = 0; rank < GetParam().size(); ++rank) {
    inputs.emplace_back(5, static_cast<char>('a' + rank));
    all += inputs.back();
  }
  std::string result(all.size(), '?');
  gathered.allgather(result.data(), 5, pointers_to(inputs));
  EXPECT_EQ(result, all);
  result.resize(5);
  gathered.broadcast(result.data(), 5, pointers_to(inputs)[1]);
  EXPECT_EQ(result, "bbbbb");
  gathered.broadcast(nullptr, 0, nullptr);
  EXPECT_EQ(result, "bbbbb");
}

}  // namespace
}  // namespace kolo::internal
