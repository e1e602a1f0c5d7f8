// The roads of control frames under the suite of ControlLink: TCP over loopback, and memory.
#include "tests/conformance/control_suite.h"
#include "tests/unit/transport/loopback.h"
#include "transport/inproc/inproc_control.h"

namespace kolo::internal {
namespace {

ControlMesh tcp_control(const std::vector<int>& host_index) {
  MeshPlan plan;
  plan.size = static_cast<int>(host_index.size());
  plan.host_index = host_index;
  auto ranks = std::make_shared<std::vector<MeshRank>>(connect_mesh(plan));
  ControlMesh mesh;
  for (MeshRank& rank : *ranks) {
    EXPECT_TRUE(rank.fabric.is_ok()) << rank.fabric.status().to_string();
    mesh.links.push_back(std::move(rank.fabric->control));
  }
  mesh.owner = ranks;
  return mesh;
}

ControlMesh inproc_control(const std::vector<int>& host_index) {
  auto network = std::make_shared<InprocControlNetwork>(host_index);
  ControlMesh mesh;
  for (std::size_t rank = 0; rank < host_index.size(); ++rank) {
    mesh.links.push_back(network->link(static_cast<int>(rank)));
  }
  mesh.owner = network;
  return mesh;
}

INSTANTIATE_TEST_SUITE_P(Roads, ControlSuite,
                         testing::Values(ControlRoad{"tcp", tcp_control},
                                         ControlRoad{"inproc", inproc_control}),
                         control_road_name);

}  // namespace
}  // namespace kolo::internal
