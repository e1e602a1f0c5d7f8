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

}  // namespace kolo::internal
