// Where each rank's buffers lie: in host memory, or on which of its devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/placement.h"
#include "tests/unit/coordinator/cluster.h"
#include "tests/unit/coordinator/units.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

UnitPtr tensor_on(std::int32_t device, const std::string& name = "g") {
  TensorSpec spec = spec_of(name, {4});
  spec.device = device;
  return share(single(std::move(spec)));
}

// Three ranks on two hosts.
class Placement : public ::testing::Test {
 protected:
  void submit_all(Cluster& cluster, Ticket ticket, const std::vector<std::int32_t>& devices) {
    for (int rank = 0; rank < 3; ++rank) {
      const UnitPtr unit = tensor_on(devices[static_cast<std::size_t>(rank)]);
      ASSERT_TRUE(cluster.submit(rank, ticket, unit).is_ok());
    }
    cluster.settle();
  }
  void expect_devices(Cluster& cluster, Ticket ticket, const std::vector<std::int32_t>& devices) {
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_FALSE(cluster[rank].plans.empty());
      const PlannedUnit& last = cluster[rank].plans.back().units.front();
      EXPECT_EQ(last.ticket, ticket);
      EXPECT_EQ(last.unit->tensors.front().devices, devices) << "rank " << rank;
    }
  }
};

TEST_F(Placement, TheOrderSaysWhereTheTensorIsOnEveryRank) {
  Cluster cluster{Topology({0, 0, 1})};
  for (Ticket ticket = 1; ticket < 4; ++ticket) {
    submit_all(cluster, ticket, {0, 3, 1});
    expect_devices(cluster, ticket, {0, 3, 1});
  }
}

TEST_F(Placement, HostTensorsHaveNoDevices) {
  Cluster cluster{Topology({0, 0, 1})};
  submit_all(cluster, 1, {kHostMemory, kHostMemory, kHostMemory});
  expect_devices(cluster, 1, {});
}

TEST_F(Placement, ATensorThatMovesIsNegotiatedAnew) {
  Cluster cluster{Topology({0, 0, 1})};
  const std::vector<std::vector<std::int32_t>> steps = {
      {0, 0, 0},           {0, 0, 0},    {0, 1, 0},    {0, 1, 0}, {kHostMemory, 1, 0},
      {kHostMemory, 1, 0}, {-1, -1, -1}, {-1, -1, -1}, {2, 2, 2}};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    submit_all(cluster, i + 1, steps[i]);
    const bool host = steps[i] == std::vector<std::int32_t>{-1, -1, -1};
    expect_devices(cluster, i + 1, host ? std::vector<std::int32_t>() : steps[i]);
  }
}

TEST_F(Placement, MixedMemoryCanBeAMismatch) {
  SequencerOptions options;
  options.mixed_memory = false;
  Cluster cluster(Topology({0, 0, 1}), options);
  submit_all(cluster, 1, {0, kHostMemory, 1});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(cluster[rank].ended[1].code(), StatusCode::kMismatch);
    EXPECT_THAT(cluster[rank].ended[1].text(),
                AllOf(HasSubstr("memory differs: of a device on ranks 0, 2; of the host on rank 1"),
                      HasSubstr("KOLO_MIXED_MEMORY=staged")));
  }
  submit_all(cluster, 2, {0, 0, 1});
  expect_devices(cluster, 2, {0, 0, 1});
}

TEST_F(Placement, ARankThatHasJoinedHasNothingAnywhere) {
  SequencerOptions options;
  options.mixed_memory = false;
  Cluster cluster(Topology({0, 0, 1}), options);
  ASSERT_TRUE(cluster.at(2).join(0));
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(cluster.submit(rank, 1, tensor_on(rank)).is_ok());
  }
  cluster.settle();
  const PlannedUnit& planned = cluster[0].plans.back().units.front();
  EXPECT_THAT(planned.unit->tensors.front().devices, ElementsAre(0, 1, kHostMemory));
  EXPECT_THAT(planned.absent, ElementsAre(2));
}

TEST_F(Placement, TensorsFuseWithTheirLikeOnTheSameDevices) {
  const std::vector<std::int32_t> here = {0, 0};
  const std::vector<std::int32_t> there = {0, 1};
  std::vector<TensorSpec> specs(5, spec_of("t", {4}));
  specs[0].devices = here;
  specs[1].devices = there;
  specs[3].devices = here;
  specs[4].devices = there;
  std::vector<FusionItem> items;
  for (const TensorSpec& spec : specs) items.push_back(fusion_item(0, spec));
  FusionPlanner planner({});
  EXPECT_THAT(planner.assign(items), ElementsAre(0, 1, 2, 0, 1));
}

TEST_F(Placement, BytesOfADeviceDoNotTravelWithTheOrder) {
  EXPECT_TRUE(payload_may_travel(*tensor_on(kHostMemory)));
  EXPECT_FALSE(payload_may_travel(*tensor_on(0)));
  TensorSpec agreed = spec_of("g", {4});
  agreed.devices = {0, 1};
  EXPECT_FALSE(payload_may_travel(single(std::move(agreed))));
}

TEST_F(Placement, APartOfAnAgreedUnitIsToldByItsPlace) {
  TensorSpec spec = spec_of("g", {4});
  spec.devices = {0, kHostMemory};
  const Unit agreed = single(spec);
  EXPECT_TRUE(is_part_of(*tensor_on(0), agreed, 0));
  EXPECT_FALSE(is_part_of(*tensor_on(0), agreed, 1));
  EXPECT_TRUE(is_part_of(*tensor_on(kHostMemory), agreed, 1));
  EXPECT_FALSE(is_part_of(*tensor_on(1), agreed, 0));
  EXPECT_FALSE(is_part_of(*tensor_on(0, "h"), agreed, 0));
  EXPECT_TRUE(devices_fit(agreed, 2));
  EXPECT_FALSE(devices_fit(agreed, 3));
}

TEST_F(Placement, GoesThroughAFrame) {
  TensorSpec spec = spec_of("g", {4});
  spec.device = 2;
  spec.devices = {0, kHostMemory, 7};
  Frame frame;
  frame.facts.push_back({share(single(spec)), 0, false, {}});
  const Result<Frame> read = decode(encode(frame));
  ASSERT_TRUE(read.is_ok()) << read.status().text();
  EXPECT_EQ(*read->facts.front().unit, single(spec));
}

}  // namespace
}  // namespace kolo::internal
