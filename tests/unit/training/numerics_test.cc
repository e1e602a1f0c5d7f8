// Clipping and the loss scaler: arithmetic and states, without communication.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "kolo/kolo.hpp"
#include "tests/unit/training/refused.h"

namespace {

using kolo::clip_by_global_norm;
using kolo::LossScaler;
using kolo::LossScalerSettings;
using training_test::expect_refused;

TEST(ClipByGlobalNorm, LongerOnesAreScaledByOneFactor) {
  std::vector<std::vector<float>> tensors = {{3, 0}, {}, {0, 4}};
  EXPECT_DOUBLE_EQ(clip_by_global_norm(tensors, 1.0), 5.0);
  EXPECT_THAT(tensors[0], testing::ElementsAre(testing::FloatEq(0.6f), 0));
  EXPECT_THAT(tensors[2], testing::ElementsAre(0, testing::FloatEq(0.8f)));
  EXPECT_NEAR(clip_by_global_norm(tensors, 1.0), 1.0, 1e-7);
}

TEST(ClipByGlobalNorm, ShorterOnesStayBitForBit) {
  std::vector<double> one = {0.1, 0.2};
  std::vector<double> two = {-0.3};
  const std::array<std::span<double>, 2> tensors = {one, two};
  EXPECT_NEAR(clip_by_global_norm(tensors, 0.5), std::sqrt(0.14), 1e-15);
  EXPECT_EQ(one, (std::vector<double>{0.1, 0.2}));
  EXPECT_EQ(two, (std::vector<double>{-0.3}));
}

TEST(ClipByGlobalNorm, TheNormIsKeptInDouble) {
  // In float the squares would overflow, and the many small ones be lost beside the large one.
  std::vector<std::vector<float>> large = {{3e30f, 4e30f}};
  EXPECT_NEAR(clip_by_global_norm(large, 1.0) / 5e30, 1.0, 1e-6);
  EXPECT_NEAR(large[0][0], 0.6f, 1e-6);
  std::vector<std::vector<float>> many = {{1.0f}, std::vector<float>(1 << 20, 1e-4f)};
  EXPECT_NEAR(clip_by_global_norm(many, 10.0), std::sqrt(1.0 + 1048576.0 * 1e-8), 1e-6);
}

TEST(ClipByGlobalNorm, ANormThatIsNotFiniteClipsNothing) {
  std::vector<std::vector<float>> tensors = {{1, std::numeric_limits<float>::infinity()}};
  EXPECT_TRUE(std::isinf(clip_by_global_norm(tensors, 1.0)));
  EXPECT_EQ(tensors[0][0], 1);
  tensors[0][1] = std::nanf("");
  EXPECT_TRUE(std::isnan(clip_by_global_norm(tensors, 1.0)));
  EXPECT_EQ(tensors[0][0], 1);
}

TEST(ClipByGlobalNorm, ALimitThatIsNone) {
  std::vector<std::vector<float>> tensors = {{1}};
  for (const double limit : {0.0, -1.0, std::nan("")}) {
    expect_refused([&] { clip_by_global_norm(tensors, limit); }, "max_norm");
  }
}

TEST(LossScaler, HalvesOnOverflowAndDoublesAfterGoodSteps) {
  LossScaler scaler({.scale = 1024, .growth_steps = 3});
  EXPECT_FALSE(scaler.update(1));
  EXPECT_EQ(scaler.scale(), 512);
  EXPECT_TRUE(scaler.update(0));
  EXPECT_TRUE(scaler.update(0));
  EXPECT_FALSE(scaler.update(7));  // begins to count anew
  EXPECT_EQ(scaler.scale(), 256);
  for (int step = 0; step < 2; ++step) {
    EXPECT_TRUE(scaler.update(0));
    EXPECT_EQ(scaler.scale(), 256);
  }
  EXPECT_TRUE(scaler.update(0));
  EXPECT_EQ(scaler.scale(), 512);
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(scaler.update(0));
  EXPECT_EQ(scaler.scale(), 1024);
}

TEST(LossScaler, StaysWithinItsBounds) {
  LossScaler scaler({.scale = 4, .growth_steps = 1, .min_scale = 1, .max_scale = 16});
  for (int step = 0; step < 5; ++step) EXPECT_TRUE(scaler.update(0));
  EXPECT_EQ(scaler.scale(), 16);
  for (int step = 0; step < 9; ++step) EXPECT_FALSE(scaler.update(1));
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScaler, ItsStateGoesFromOneRankToAnother) {
  LossScaler one({.scale = 64, .growth_steps = 2});
  LossScaler other({.scale = 64, .growth_steps = 2});
  one.update(1);
  one.update(0);
  std::copy(one.state().begin(), one.state().end(), other.state().begin());
  other.update(0);
  EXPECT_EQ(other.scale(), 64);
}

TEST(LossScaler, SettingsThatAreNone) {
  for (const LossScalerSettings& settings :
       {LossScalerSettings{.scale = 0}, LossScalerSettings{.scale = 8, .max_scale = 4},
        LossScalerSettings{.scale = 8, .min_scale = 16}, LossScalerSettings{.growth_steps = 0},
        LossScalerSettings{.min_scale = 0}, LossScalerSettings{.scale = std::nan("")}}) {
    expect_refused([&] { const LossScaler scaler(settings); }, "LossScaler");
  }
}

}  // namespace
