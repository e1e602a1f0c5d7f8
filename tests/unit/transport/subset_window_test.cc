#include "transport/subset_window.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <memory>
#include <vector>

#include "transport/inproc/inproc_window.h"

namespace kolo::internal {
namespace {

constexpr std::array<int, 2> kMembers = {1, 3};

bool rung(const Window& window) {
  pollfd bell{.fd = window.bell(), .events = POLLIN, .revents = 0};
  return ::poll(&bell, 1, 0) == 1;
}

// One rank of four; says whom it has lost, and what it was asked to put memory behind.
class FakeWindow final : public Window {
 public:
  FakeWindow(std::byte* memory, std::size_t bytes, std::size_t room)
      : Window(1, bytes, memory, {memory, memory, memory, memory}), room_(room) {}

  Status commit(std::size_t offset, std::size_t bytes) override {
    if (offset + bytes > room_) return resource_error("no memory for it");
    committed = offset + bytes;
    return Status::ok();
  }
  int bell() const override { return -1; }
  int lost() const override { return lost_rank; }

  std::size_t committed = 0;
  int lost_rank = -1;
  std::vector<int> woken;

 private:
  void wake(int peer) override { woken.push_back(peer); }
  std::size_t room_;
};

class SubsetWindowTest : public ::testing::Test {
 protected:
  SubsetWindowTest() : windows_(std::move(*make_inproc_windows(4, 1 << 20))) {}
  std::vector<std::unique_ptr<Window>> windows_;
};

TEST_F(SubsetWindowTest, ShowsTheMembersInTheirOrder) {
  const SubsetWindow one(*windows_[1], kMembers);
  SubsetWindow three(*windows_[3], kMembers);
  EXPECT_EQ(one.rank(), 0);
  EXPECT_EQ(three.rank(), 1);
  EXPECT_EQ(three.size(), 2);
  EXPECT_EQ(three.bytes(), windows_[3]->bytes());
  EXPECT_EQ(three.of(0), windows_[3]->of(1));
  EXPECT_EQ(three.own(), windows_[3]->own());
  constexpr std::size_t kWord = Window::kHeaderBytes;
  three.own_word<std::uint64_t>(kWord).store(7);
  EXPECT_EQ(one.word<std::uint64_t>(1, kWord).load(), 7U);
  EXPECT_EQ(windows_[0]->word<std::uint64_t>(3, kWord).load(), 7U);
}

TEST_F(SubsetWindowTest, RingsAMemberThatSleepsInEitherWindow) {
  SubsetWindow one(*windows_[1], kMembers);
  SubsetWindow three(*windows_[3], kMembers);
  one.ring_all();
  for (const auto& window : windows_) EXPECT_FALSE(rung(*window)) << window->rank();
  windows_[3]->set_asleep(true);
  windows_[0]->set_asleep(true);
  one.ring_all();
  EXPECT_TRUE(rung(three));
  EXPECT_FALSE(rung(*windows_[0])) << "no member";
  EXPECT_EQ(three.bell(), windows_[3]->bell());
  three.set_asleep(false);
  EXPECT_EQ(windows_[0]->word<std::uint32_t>(3, 0).load(), 0U);
  three.wake_up(0);
  EXPECT_TRUE(rung(*windows_[1])) << "awake, but woken all the same";
  EXPECT_EQ(windows_[1]->counters().rings.load(), 1U);
  EXPECT_EQ(windows_[3]->counters().rings.load(), 1U);
}

TEST_F(SubsetWindowTest, NothingCanBeCarved) {
  SubsetWindow one(*windows_[1], kMembers);
  EXPECT_EQ(one.carve(1).status().code(), StatusCode::kResource);
  EXPECT_EQ(one.reserve(1).status().code(), StatusCode::kResource);
  EXPECT_TRUE(windows_[1]->carve(1).is_ok());
}

TEST(SubsetWindow, KnowsOfLostMembersOnly) {
  alignas(64) std::array<std::byte, 64> memory{};
  FakeWindow whole(memory.data(), memory.size(), 0);
  const SubsetWindow subset(whole, kMembers);
  EXPECT_EQ(subset.lost(), -1);
  whole.lost_rank = 3;
  EXPECT_EQ(subset.lost(), 1);
  whole.lost_rank = 2;
  EXPECT_EQ(subset.lost(), -1);
}

TEST(Window, WhatIsReservedGetsItsMemoryLater) {
  alignas(64) std::array<std::byte, 64> memory{};
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kStart = Window::kHeaderBytes;
  FakeWindow window(memory.data(), kStart + 8 * kPage, kStart + 4 * kPage);
  EXPECT_EQ(*window.carve(1), kStart);
  EXPECT_EQ(window.committed, kStart + kPage);
  EXPECT_EQ(*window.reserve(kPage + 1), kStart + kPage);
  EXPECT_EQ(window.committed, kStart + kPage);
  EXPECT_EQ(window.carved(), kStart + 3 * kPage);
  EXPECT_EQ(*window.carve(kPage), kStart + 3 * kPage);
  EXPECT_EQ(window.carve(1).status().code(), StatusCode::kResource) << "no memory";
  EXPECT_EQ(window.carved(), kStart + 4 * kPage);
  EXPECT_EQ(*window.reserve(4 * kPage), kStart + 4 * kPage);
  EXPECT_EQ(window.reserve(1).status().code(), StatusCode::kResource) << "full";
  const SubsetWindow all(window, std::array{0, 1, 2, 3});
  SubsetWindow alone(window, std::array{1});
  EXPECT_TRUE(alone.commit(kStart + kPage, 2 * kPage).is_ok());
  EXPECT_EQ(window.committed, kStart + 3 * kPage);
}

}  // namespace
}  // namespace kolo::internal
