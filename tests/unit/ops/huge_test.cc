// Above 2^32 elements: collectives over channels that move nothing and only look at where each
// message begins and ends. The tensors are address space; hardly any of it is touched.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <memory>
#include <vector>

#include "ops/collectives.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kHuge = (std::size_t{1} << 32) + 12345;

// Address space that reads as zeros.
class Space {
 public:
  explicit Space(std::size_t bytes)
      : bytes_(bytes),
        memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    EXPECT_NE(memory_, MAP_FAILED);
  }
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;
  ~Space() { ::munmap(memory_, bytes_); }
  [[nodiscard]] std::byte* get() const { return static_cast<std::byte*>(memory_); }

 private:
  std::size_t bytes_;
  void* memory_;
};

// What a stream has carried, as stretches of memory; all of it done at the next advance().
class Recorder final : public Channel {
 public:
  using Stretches = std::vector<std::pair<const std::byte*, std::size_t>>;

  void post_send(Transfer& send) override { post(send, sent_); }
  void post_receive(Transfer& receive) override { post(receive, received_); }
  Status advance() override {
    for (Transfer* transfer : posted_) transfer->done = true;
    posted_.clear();
    return Status::ok();
  }
  void cancel() override { posted_.clear(); }
  void drop(std::uint32_t) override { posted_.clear(); }
  void finish() override {}
  [[nodiscard]] bool finished() const override { return true; }
  [[nodiscard]] bool peer_finished() const override { return true; }
  [[nodiscard]] const ChannelCounters& counters() const override { return counters_; }

  [[nodiscard]] const Stretches& sent() const { return sent_; }
  [[nodiscard]] const Stretches& received() const { return received_; }

 private:
  void post(Transfer& transfer, Stretches& stretches) {
    transfer.done = false;
    posted_.push_back(&transfer);
    if (!stretches.empty() && stretches.back().first + stretches.back().second == transfer.data) {
      stretches.back().second += transfer.bytes;
    } else {
      stretches.emplace_back(transfer.data, transfer.bytes);
    }
  }

  std::vector<Transfer*> posted_;
  Stretches sent_, received_;
  ChannelCounters counters_;
};

// One rank of three.
class Huge : public testing::TestWithParam<AlgorithmChoice> {
 protected:
  static constexpr int kRank = 2;

  Collectives& collectives() { return collectives_; }
  Recorder& to(int peer) { return recorders_[static_cast<std::size_t>(peer)]; }

  static void finish(Operation& operation) {
    for (;;) {
      const Result<Progress> progress = operation.advance();
      ASSERT_TRUE(progress.is_ok());
      if (*progress == Progress::kDone) return;
    }
  }

 private:
  std::array<Recorder, 3> recorders_;
  std::array<Channel*, 3> channels_ = {&recorders_[0], &recorders_[1], nullptr};
  const ReductionOrder order_ = ReductionOrder::single_host(3);
  ChannelCollectives collectives_{
      {.rank = kRank, .size = 3, .channels = channels_, .order = &order_}, GetParam()};
};

using Stretches = Recorder::Stretches;

TEST_P(Huge, ReduceScatterSendsWhatLiesFarInTheTensor) {
  const bool ring = GetParam() == AlgorithmChoice::kRing;
  // Round the ring the second block is sent as it is; the first would have to be added up.
  const std::size_t first = ring ? 7 : kHuge;
  const std::array<std::size_t, 3> counts = {first, kHuge, 10};
  const std::size_t count = first + kHuge + 10;
  const Space input(count * sizeof(float));
  std::array<float, 10> output{};
  auto* own = reinterpret_cast<float*>(input.get()) + first + kHuge;
  for (int i = 0; i < 10; ++i) own[i] = static_cast<float>(i);
  const Piece piece{.input = input.get(), .output = output.data(), .count = count};
  finish(collectives().start_reduce_scatter(1, piece, counts, {}));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(own[i], static_cast<float>(i)) << "input changed";
  const std::byte* second = input.get() + first * sizeof(float);
  if (!ring) {
    EXPECT_EQ(to(0).sent(), (Stretches{{input.get(), first * sizeof(float)}}));
    EXPECT_EQ(to(1).sent(), (Stretches{{second, kHuge * sizeof(float)}}));
    return;
  }
  std::size_t bytes = 0;
  for (const auto& [data, length] : to(0).sent()) {
    if (data < second || data >= second + kHuge * sizeof(float)) continue;  // a partial sum
    EXPECT_EQ(data, second + bytes);
    bytes += length;
  }
  EXPECT_EQ(bytes, kHuge * sizeof(float));
}

TEST_P(Huge, AllgatherPutsEveryBlockInItsPlace) {
  const Space output(3 * kHuge);
  std::byte* own = output.get() + 2 * kHuge;
  const std::array<std::size_t, 3> bytes = {kHuge, kHuge, kHuge};
  finish(collectives().start_allgather(1, own, output.get(), bytes));
  if (GetParam() == AlgorithmChoice::kRing) {
    // To the first go the own block and that of the second, which comes first.
    EXPECT_EQ(to(0).sent(), (Stretches{{own, kHuge}, {output.get() + kHuge, kHuge}}));
    EXPECT_EQ(to(1).received(), (Stretches{{output.get() + kHuge, kHuge}, {output.get(), kHuge}}));
  } else {
    for (int peer : {0, 1}) {
      std::byte* place = output.get() + static_cast<std::size_t>(peer) * kHuge;
      EXPECT_EQ(to(peer).sent(), (Stretches{{own, kHuge}}));
      EXPECT_EQ(to(peer).received(), (Stretches{{place, kHuge}}));
    }
  }
}

TEST_P(Huge, AlltoallPutsEveryBlockInItsPlace) {
  const Space input(2 * kHuge + 1), output(2 * kHuge + 3);
  const std::array<std::size_t, 3> send = {kHuge, kHuge + 1, 0}, receive = {kHuge + 3, kHuge, 0};
  finish(collectives().start_alltoall(1, input.get(), output.get(), send, receive));
  EXPECT_EQ(to(0).sent(), (Stretches{{input.get(), kHuge}}));
  EXPECT_EQ(to(1).sent(), (Stretches{{input.get() + kHuge, kHuge + 1}}));
  EXPECT_EQ(to(0).received(), (Stretches{{output.get(), kHuge + 3}}));
  EXPECT_EQ(to(1).received(), (Stretches{{output.get() + kHuge + 3, kHuge}}));
}

TEST_P(Huge, BroadcastSendsEachSliceOnce) {
  const Space memory(kHuge);
  finish(collectives().start_broadcast(1, kRank, {memory.get(), memory.get(), kHuge}));
  const std::size_t half = kHuge / 2 + kHuge % 2;
  EXPECT_EQ(to(0).sent(), (Stretches{{memory.get(), half}}));
  EXPECT_EQ(to(1).sent(), (Stretches{{memory.get() + half, kHuge - half}}));
}

INSTANTIATE_TEST_SUITE_P(Choices, Huge,
                         testing::Values(AlgorithmChoice::kDirect, AlgorithmChoice::kRing),
                         [](const auto& test) {
                           return test.param == AlgorithmChoice::kRing ? "Ring" : "Direct";
                         });

}  // namespace
}  // namespace kolo::internal
