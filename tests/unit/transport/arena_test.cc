#include "transport/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "transport/inproc/inproc_window.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 64;  // of the arena

// A window that counts what is committed, and can be told to have no more memory.
class CountingWindow final : public Window {
 public:
  // `memory` stays the caller's.
  CountingWindow(std::byte* memory, std::size_t bytes) : Window(0, bytes, memory, {}) {}

  Status commit(std::size_t offset, std::size_t bytes) override {
    if (offset + bytes > allowed) return resource_error("no memory for it");
    committed += bytes;
    return Status::ok();
  }
  int bell() const override { return -1; }
  int lost() const override { return -1; }

  std::size_t allowed = SIZE_MAX;
  std::size_t committed = 0;

 private:
  void wake(int) override {}
};

class ArenaTest : public ::testing::Test {
 protected:
  ArenaTest() : windows_(std::move(*make_inproc_windows(2, kWindowBytes))) {
    carved_ = *window().carve(3 * kPage) + 3 * kPage;
    arena_ = std::make_unique<Arena>(window());
  }
  Window& window() { return *windows_[1]; }
  std::byte* allocate(std::size_t bytes) {
    Result<void*> memory = arena_->allocate(bytes);
    EXPECT_TRUE(memory.is_ok()) << memory.status().to_string();
    return memory ? static_cast<std::byte*>(*memory) : nullptr;
  }

  static constexpr std::size_t kWindowBytes = Window::kHeaderBytes + (3 + kPages) * kPage;
  std::vector<std::unique_ptr<Window>> windows_;
  std::size_t carved_ = 0;
  std::unique_ptr<Arena> arena_;
};

TEST_F(ArenaTest, GivesPagesOfTheSegmentBehindWhatIsCarved) {
  std::byte* a = allocate(1);
  std::byte* b = allocate(0);
  EXPECT_EQ(a, window().own() + carved_);
  EXPECT_EQ(b, a + kPage);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % kPage, 0U);
  std::memset(a, 7, kPage);
  const std::optional<std::size_t> offset = arena_->offset_of(a, kPage);
  ASSERT_TRUE(offset.has_value());
  EXPECT_EQ(windows_[0]->of(1)[*offset], std::byte{7});  // what a peer sees
}

TEST_F(ArenaTest, OffsetOfKnowsInsideFromOutside) {
  std::byte* a = allocate(3 * kPage);
  std::byte* b = allocate(kPage);
  EXPECT_EQ(arena_->offset_of(a + 5, 3 * kPage - 5), carved_ + 5);
  EXPECT_EQ(arena_->offset_of(a, 0), carved_);
  EXPECT_EQ(arena_->offset_of(b + kPage - 1, 1), carved_ + 4 * kPage - 1);
  EXPECT_FALSE(arena_->offset_of(b + kPage - 1, 2).has_value());
  EXPECT_FALSE(arena_->offset_of(b + kPage, 1).has_value()) << "not given out";
  EXPECT_FALSE(arena_->offset_of(a - 1, 1).has_value()) << "carved";
  EXPECT_FALSE(arena_->offset_of(a, SIZE_MAX).has_value());
  int ordinary = 0;
  EXPECT_FALSE(arena_->offset_of(&ordinary, sizeof ordinary).has_value());
  EXPECT_FALSE(arena_->offset_of(nullptr, 1).has_value());
  EXPECT_FALSE(arena_->offset_of(window().own() + window().bytes(), 1).has_value());
  ASSERT_TRUE(arena_->free(a).is_ok());
  EXPECT_FALSE(arena_->offset_of(a, 1).has_value()) << "freed";
  EXPECT_TRUE(arena_->offset_of(b, 1).has_value());
}

TEST_F(ArenaTest, FreedNeighboursBecomeOneBlock) {
  std::vector<std::byte*> blocks;
  for (std::size_t i = 0; i < 8; ++i) blocks.push_back(allocate(kPages / 8 * kPage));
  EXPECT_EQ(arena_->allocate(1).status().code(), StatusCode::kResource);
  for (const std::size_t i : {1, 3, 2, 0, 7, 5, 6, 4}) {
    ASSERT_TRUE(arena_->free(blocks[i]).is_ok());
  }
  EXPECT_EQ(allocate(kPages * kPage), blocks[0]);
}

TEST_F(ArenaTest, TakesTheSmallestBlockThatFits) {
  std::byte* large = allocate(8 * kPage);
  allocate(1);
  std::byte* small = allocate(2 * kPage);
  allocate(1);
  ASSERT_TRUE(arena_->free(large).is_ok());
  ASSERT_TRUE(arena_->free(small).is_ok());
  EXPECT_EQ(allocate(2 * kPage), small);
  EXPECT_EQ(allocate(2 * kPage), large);
}

TEST_F(ArenaTest, RefusesWhatItHasNotGiven) {
  std::byte* a = allocate(2 * kPage);
  int ordinary = 0;
  EXPECT_EQ(arena_->free(&ordinary).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(arena_->free(a + kPage).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(arena_->free(nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(arena_->free(a).is_ok());
  EXPECT_EQ(arena_->free(a).code(), StatusCode::kInvalidArgument);
}

TEST_F(ArenaTest, TooMuchIsAResourceErrorThatNamesTheBytes) {
  allocate(kPage);
  const Status status = arena_->allocate(kPages * kPage).status();
  EXPECT_EQ(status.code(), StatusCode::kResource);
  EXPECT_NE(status.text().find(std::to_string(kPages * kPage)), std::string::npos) << status.text();
  EXPECT_EQ(arena_->allocate(SIZE_MAX).status().code(), StatusCode::kResource);
  EXPECT_EQ(arena_->allocate(SIZE_MAX - kPage).status().code(), StatusCode::kResource);
  EXPECT_NE(allocate((kPages - 1) * kPage), nullptr);
}

TEST(Arena, CommitsOnceAndSurvivesRefusal) {
  std::vector<std::byte> memory(Window::kHeaderBytes + kPages * kPage);
  CountingWindow window(memory.data(), memory.size());
  Arena arena(window);
  Result<void*> first = arena.allocate(4 * kPage);
  ASSERT_TRUE(first.is_ok());
  EXPECT_EQ(window.committed, 4 * kPage);
  ASSERT_TRUE(arena.free(*first).is_ok());
  window.allowed = Window::kHeaderBytes + 6 * kPage;
  EXPECT_EQ(arena.allocate(7 * kPage).status().code(), StatusCode::kResource);
  EXPECT_EQ(window.committed, 4 * kPage);
  Result<void*> second = arena.allocate(6 * kPage);  // what there is, and two pages more
  ASSERT_TRUE(second.is_ok()) << second.status().to_string();
  EXPECT_EQ(*second, *first);
  EXPECT_EQ(window.committed, 6 * kPage);
}

// Against a plain model: blocks never overlap, stay within, and all room comes back.
TEST_F(ArenaTest, RandomUseKeepsBlocksApart) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::map<std::byte*, std::size_t> given;
    for (int step = 0; step < 500; ++step) {
      if (given.empty() || random() % 2 == 0) {
        const std::size_t bytes = 1 + random() % (8 * kPage);
        Result<void*> memory = arena_->allocate(bytes);
        if (!memory) continue;
        auto* begin = static_cast<std::byte*>(*memory);
        const auto after = given.lower_bound(begin);
        if (after != given.end()) {
          ASSERT_LE(begin + bytes, after->first);
        }
        if (after != given.begin()) {
          const auto before = std::prev(after);
          ASSERT_LE(before->first + before->second, begin);
        }
        ASSERT_GE(begin, window().own() + carved_);
        ASSERT_LE(begin + bytes, window().own() + window().bytes());
        given[begin] = bytes;
      } else {
        auto victim = given.begin();
        std::advance(victim, random() % given.size());
        ASSERT_TRUE(arena_->free(victim->first).is_ok());
        given.erase(victim);
      }
    }
    for (const auto& [begin, bytes] : given) ASSERT_TRUE(arena_->free(begin).is_ok());
    std::byte* all = allocate(kPages * kPage);
    ASSERT_NE(all, nullptr);
    ASSERT_TRUE(arena_->free(all).is_ok());
  }
}

TEST_F(ArenaTest, ManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int step = 0; step < 300; ++step) {
        const std::size_t bytes = 1 + random() % (4 * kPage);
        std::byte* mine = allocate(bytes);
        std::memset(mine, t, bytes);
        EXPECT_TRUE(arena_->offset_of(mine, bytes).has_value());
        EXPECT_EQ(mine[bytes - 1], static_cast<std::byte>(t));
        EXPECT_TRUE(arena_->free(mine).is_ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kolo::internal
