// The TCP road under the suite of Channel: real connections over loopback, all ranks in one thread.
#include "tests/conformance/drop_suite.h"
#include "tests/unit/transport/loopback.h"

namespace kolo::internal {
namespace {

std::shared_ptr<std::vector<MeshRank>> connect(int size, int streams, bool checksum) {
  MeshPlan plan;
  plan.options.checksum = checksum;
  plan.size = size;
  plan.options.streams = streams;
  auto ranks = std::make_shared<std::vector<MeshRank>>(connect_mesh(plan));
  for (const MeshRank& rank : *ranks) {
    EXPECT_TRUE(rank.fabric.is_ok()) << rank.fabric.status().to_string();
  }
  return ranks;
}

Road tcp_road(std::string name, std::size_t stream, bool checksum = false) {
  return {std::move(name), [stream, checksum](int size, std::uint64_t) {
            auto ranks = connect(size, static_cast<int>(stream) + 1, checksum);
            Mesh mesh;
            for (MeshRank& rank : *ranks) {
              mesh.rows.push_back(std::move(rank.fabric->channels[stream]));
            }
            mesh.owner = ranks;
            return mesh;
          }};
}

INSTANTIATE_TEST_SUITE_P(Tcp, ChannelSuite,
                         testing::Values(tcp_road("first_stream", 0), tcp_road("second_stream", 1),
                                         tcp_road("checksummed", 0, true)),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Tcp, DropSuite,
                         testing::Values(tcp_road("first_stream", 0),
                                         tcp_road("checksummed", 0, true)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kolo::internal
