// Collectives over TCP on loopback. (The TCP channel by itself: tests/conformance/tcp.)
#include "tests/conformance/adasum_suite.h"
#include "tests/conformance/collectives_suite.h"
#include "tests/conformance/loss_suite.h"
#include "tests/conformance/ragged_suite.h"
#include "tests/unit/transport/loopback.h"

namespace kolo::internal {
namespace {

Mesh make_mesh(int size, std::uint64_t) {
  Mesh mesh;
  const auto ranks = std::make_shared<std::vector<MeshRank>>(
      connect_mesh({.size = size, .options = {1, {"127.0.0.1"}, 10s}}));
  mesh.owner = ranks;
  for (MeshRank& rank : *ranks) {
    if (!rank.fabric.is_ok()) {
      ADD_FAILURE() << rank.fabric.status().to_string();
      continue;
    }
    mesh.rows.push_back(std::move(rank.fabric->channels[0]));
  }
  return mesh;
}

CollectiveRoad loopback() { return over_channels(Road{"Loopback", make_mesh, /*sampled=*/true}); }

INSTANTIATE_TEST_SUITE_P(Tcp, CollectivesSuite, testing::Values(loopback()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Tcp, LossSuite, testing::Values(loopback()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Tcp, AdasumSuite, testing::Values(loopback()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Tcp, RaggedSuite, testing::Values(loopback()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kolo::internal
