// What roads promise that notice a death themselves: channels do, windows do not.
#pragma once

#include "tests/conformance/collectives_suite.h"

namespace kolo::internal {

class LossSuite : public CollectivesSuite {};

TEST_P(LossSuite, ALostRankEndsTheOperationOnAllOthers) {
  for (Algorithm algorithm : algorithms()) {
    World world(GetParam(), layouts(3)[0], kSeed);
    auto& job = dynamic_cast<ChannelJob&>(world.job());
    std::vector<std::vector<float>> values(3, std::vector<float>(1 << 20, 1.0F));
    int calls = 0;
    const auto statuses = world.run([&](std::size_t r) -> Operation& {
      if (++calls == 3) return job.lose(r);  // the last to come finds that it has died
      const Piece piece{
          .input = values[r].data(), .output = values[r].data(), .count = values[r].size()};
      return job.allreduce(r, algorithm, {&piece, 1}, {});
    });
    ASSERT_TRUE(statuses.has_value()) << algorithm_name(algorithm);
    int lost = 0;
    for (const Status& status : *statuses) lost += status.code() == StatusCode::kPeerLost ? 1 : 0;
    EXPECT_EQ(lost, 2) << algorithm_name(algorithm);
  }
}

TEST_P(LossSuite, ALostRankEndsEveryOtherCollectiveToo) {
  enum Kind { kReduceScatter, kAllgather, kAlltoall, kFusedBroadcast };
  for (Kind kind : {kReduceScatter, kAllgather, kAlltoall, kFusedBroadcast}) {
    for (Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
      World world(GetParam(), layouts(3)[0], kSeed);
      auto& job = dynamic_cast<ChannelJob&>(world.job());
      constexpr std::size_t kCount = 3 << 19;
      const std::vector<std::size_t> blocks = {kCount / 2, kCount / 4, kCount / 4};
      const std::vector<std::size_t> equal(3, kCount);  // bytes; a third of the tensor
      std::vector<std::vector<float>> in(3, std::vector<float>(kCount, 1.0F)), out = in;
      const auto begin = [&](std::size_t r) -> Operation& {
        const Piece piece{.input = in[r].data(), .output = out[r].data(), .count = kCount};
        const std::array<BroadcastPiece, 2> pieces = {
            BroadcastPiece{in[r].data(), out[r].data(), kCount},
            BroadcastPiece{in[r].data() + kCount / 2, out[r].data() + kCount / 2, kCount}};
        switch (kind) {
          case kReduceScatter: return job.reduce_scatter(r, algorithm, piece, blocks, {});
          case kAllgather: return job.allgather(r, algorithm, in[r].data(), out[r].data(), blocks);
          case kAlltoall: return job.alltoall(r, in[r].data(), out[r].data(), equal, equal);
          case kFusedBroadcast: break;
        }
        return job.broadcast(r, 1, pieces);
      };
      int calls = 0;
      const auto statuses = world.run([&](std::size_t r) -> Operation& {
        return ++calls == 3 ? job.lose(r) : begin(r);  // the last to come finds that it has died
      });
      ASSERT_TRUE(statuses.has_value()) << "kind " << kind;
      int lost = 0;
      for (const Status& status : *statuses) lost += status.code() == StatusCode::kPeerLost ? 1 : 0;
      // Who has all it needs may end well: it waits for no word of others.
      EXPECT_GE(lost, kind == kFusedBroadcast ? 1 : 2) << "kind " << kind;
    }
  }
}

}  // namespace kolo::internal
