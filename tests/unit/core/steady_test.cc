// What repeats costs nothing but its bytes: known names over shared memory need neither memory nor
// control frames.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/core/ranks.h"
#include "tests/unit/count_allocations.h"

namespace kolo::internal {
namespace {

std::uint64_t counter(Context& context, const std::string& name) {
  const std::string info = context.info_json();
  const std::size_t place = info.find("\"" + name + "\":");
  EXPECT_NE(place, std::string::npos) << info;
  return std::stoull(info.substr(place + name.size() + 3));
}

// A step of a trainer: small and large tensors, in an order of this rank's own, a group of
// persistent ones, and blocking calls.
class Step {
 public:
  explicit Step(Context& context) : context_(context) {
    for (const std::size_t count : {1, 10, 100, 3000, 20000, 300000}) {
      names_.push_back("a gradient with a long name " + std::to_string(count));
      values_.emplace_back(count);
    }
    for (std::size_t i = 0; i < names_.size(); ++i) {
      persistent_names_.push_back("persistent " + names_[i]);
      persistent_values_.emplace_back(values_[i].size());
    }
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const auto request = context_.prepare(sum_of(persistent_names_[i], persistent_values_[i]));
      EXPECT_TRUE(request.is_ok()) << request.status().to_string();
      persistent_.push_back(*request);
    }
    requests_.resize(names_.size());
  }

  void run() {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const std::size_t turn = context_.rank() == 0 ? i : names_.size() - 1 - i;
      values_[turn].assign(values_[turn].size(), context_.rank() + 1);
      requests_[turn] = *context_.submit(sum_of(names_[turn], values_[turn]));
    }
    for (auto& values : persistent_values_) values.assign(values.size(), context_.rank() + 1);
    ok_ = ok_ && context_.start(persistent_).is_ok();
    bool done[16] = {};
    ok_ = ok_ && context_.wait_all(requests_, 20s, {done, requests_.size()}).is_ok();
    ok_ = ok_ && context_.wait_all(persistent_, 20s, {done, persistent_.size()}).is_ok();
    for (std::size_t i : {std::size_t{0}, names_.size() - 1}) {
      ok_ = ok_ && context_.run(sum_of(names_[i], values_[i])).is_ok();
    }
    ok_ = ok_ && context_.run(barrier("step")).is_ok();
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const bool ran_twice = i == 0 || i == names_.size() - 1;
      const int sum = context_.size() * (context_.size() + 1) / 2;
      ok_ = ok_ && values_[i].back() == (ran_twice ? sum * context_.size() : sum) &&
            persistent_values_[i].front() == sum;
    }
  }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  Context& context_;
  std::vector<std::string> names_, persistent_names_;
  std::vector<std::vector<std::int32_t>> values_, persistent_values_;
  std::vector<RequestId> requests_, persistent_;
  bool ok_ = true;
};

class Steady : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(TwoAndThreeRanks, Steady, testing::Values(2, 3));

// Heartbeats come four times a second from each rank, so a stretch must be shorter, also where all
// is slow. With a sanitizer on a busy machine none may be, so that what heartbeats take is allowed:
// far less than the 15 operations of a step would on each rank.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSteps = 1;
constexpr int kStretches = 600;
constexpr std::size_t kMostAllocations = 20;
#else
constexpr int kSteps = 20;
constexpr int kStretches = 30;
constexpr std::size_t kMostAllocations = 0;
#endif

// How operations are fused depends on timing, buffers grow to the largest seen, and there is a
// heartbeat now and then: so one of many short stretches must be without any allocation, and all
// without control frames.
TEST_P(Steady, KnownNamesNeedNoMemoryAndNoControlFrames) {
  Ranks ranks(GetParam(), {{"transport", "shm"}, {"peer_timeout_ms", "600000"}});
  std::vector<std::uint64_t> before(static_cast<std::size_t>(ranks.size()));
  std::vector<std::uint64_t> after(before.size());
  std::atomic<std::size_t> fewest{SIZE_MAX};
  ranks.on_all([&](Context& context) {
    const auto rank = static_cast<std::size_t>(context.rank());
    Step step(context);
    step.run();
    EXPECT_TRUE(context.run(barrier("counted")).is_ok());
    before[rank] = counter(context, "control_frames");
    for (int stretch = 0; stretch < kStretches && fewest > kMostAllocations; ++stretch) {
      EXPECT_TRUE(context.run(barrier("counted")).is_ok());
      const std::size_t allocated = allocations_so_far();
      for (int i = 0; i < kSteps; ++i) step.run();
      if (rank == 0) fewest = std::min(fewest.load(), allocations_so_far() - allocated);
      EXPECT_TRUE(context.run(barrier("counted")).is_ok());
    }
    after[rank] = counter(context, "control_frames");
    EXPECT_TRUE(step.ok());
  });
  EXPECT_LE(fewest, kMostAllocations)
      << "in " << kSteps << " steps of " << ranks.size() << " ranks";
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace kolo::internal
