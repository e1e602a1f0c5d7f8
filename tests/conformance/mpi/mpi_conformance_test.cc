// The MPI road under the suites of Channel and of the collectives. All ranks of a case live in this
// one process: MPI carries what it sends to itself too, and tags of their own tell the pairs apart.
#include "tests/conformance/adasum_suite.h"
#include "tests/conformance/channel_suite.h"
#include "tests/conformance/collectives_suite.h"
#include "tests/conformance/drop_suite.h"
#include "tests/conformance/loss_suite.h"
#include "tests/conformance/ragged_suite.h"
#include "transport/mpi/mpi_channel.h"

namespace kolo::internal {
namespace {

std::shared_ptr<MpiWorld> world() {
  auto world = MpiWorld::start(0, 1, KOLO_MPI_MODULE);
  EXPECT_TRUE(world.is_ok()) << world.status().to_string();
  EXPECT_EQ((*world)->duplicate(), Status::ok());
  return *world;
}

Mesh make_mesh(int size, std::uint64_t) {
  Mesh mesh;
  const auto mpi = world();
  const auto tag = [&](int from, int to) {
    return (from * size + to) * MpiAddress::kTagsPerDirection;
  };
  for (int rank = 0; rank < size; ++rank) {
    auto& row = mesh.rows.emplace_back();
    for (int peer = 0; peer < size; ++peer) {
      row.push_back(peer == rank ? nullptr
                                 : std::make_unique<MpiChannel>(
                                       mpi, MpiAddress{0, tag(rank, peer), tag(peer, rank)},
                                       "rank " + std::to_string(peer)));
    }
  }
  return mesh;
}

const Road kRoad{"Self", make_mesh, /*sampled=*/true, MpiChannel::kInlineBytes};

INSTANTIATE_TEST_SUITE_P(Mpi, ChannelSuite, testing::Values(kRoad),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Mpi, CollectivesSuite, testing::Values(over_channels(kRoad)),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Mpi, LossSuite, testing::Values(over_channels(kRoad)),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Mpi, AdasumSuite, testing::Values(over_channels(kRoad)),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Mpi, RaggedSuite, testing::Values(over_channels(kRoad)),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Mpi, DropSuite, testing::Values(kRoad),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kolo::internal
