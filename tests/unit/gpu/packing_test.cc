// Which tensors are packed: a pure function.
#include "ops/nccl/packing.h"

#include <gtest/gtest.h>

namespace kolo::internal::nccl {
namespace {

using Packed = std::vector<bool>;

Packed plan(const std::vector<PackingItem>& tensors, std::size_t limit, bool expect_any) {
  Packed packed(3, true);  // of an earlier operation
  EXPECT_EQ(plan_packing(tensors, limit, packed), expect_any);
  return packed;
}

TEST(Packing, TakesTensorsUpToTheLimit) {
  const std::vector<PackingItem> tensors = {{100}, {101}, {5}, {4000}, {100}};
  EXPECT_EQ(plan(tensors, 100, true), (Packed{true, false, true, false, true}));
  EXPECT_EQ(plan(tensors, 4000, true), Packed(5, true));
}

TEST(Packing, OfOneAloneThereIsNothingToPack) {
  EXPECT_EQ(plan({{100}}, 1000, false), Packed{false});
  EXPECT_EQ(plan({{100}, {2000}}, 1000, false), (Packed{false, false}));
  EXPECT_EQ(plan({}, 1000, false), Packed{});
}

TEST(Packing, ALimitOfNothingPacksNothing) {
  EXPECT_EQ(plan({{0}, {0}, {1}}, 0, false), Packed(3, false));
  EXPECT_EQ(plan({{0}, {0}, {1}}, 1, true), Packed(3, true));
}

TEST(Packing, OneLaunchHasOneScale) {
  const PackingItem plain{8, 1.0, 1.0};
  const PackingItem before{8, 0.5, 1.0};
  const PackingItem after{8, 1.0, 0.5};
  EXPECT_EQ(plan({plain, before, after, plain}, 8, true), (Packed{true, false, false, true}));
  EXPECT_EQ(plan({before, plain, before}, 8, true), (Packed{true, false, true}));
  EXPECT_EQ(plan({plain, before, after}, 8, false), Packed(3, false));
  // Too large to be packed, it has no say in that.
  EXPECT_EQ(plan({{9, 0.5, 1.0}, plain, plain}, 8, true), (Packed{false, true, true}));
}

}  // namespace
}  // namespace kolo::internal::nccl
