// The conformance suite of Window: what every back end must do, here with ranks as threads of one
// process. A back end gives
//   struct Maker {
//     static std::vector<std::unique_ptr<Window>> make(int size, std::size_t bytes);
//   };
// and says INSTANTIATE_TYPED_TEST_SUITE_P(Name, WindowSuite, Maker).
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/window/ping_pong.h"
#include "transport/arena.h"
#include "transport/poller.h"
#include "transport/window.h"

namespace kolo::internal {

template <typename Maker>
class WindowSuite : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 1 << 20;
  using Windows = std::vector<std::unique_ptr<Window>>;
  static Windows make(int size, std::size_t bytes = kBytes) { return Maker::make(size, bytes); }
};

TYPED_TEST_SUITE_P(WindowSuite);

TYPED_TEST_P(WindowSuite, RanksSeeEachOthersWords) {
  for (const int size : {1, 2, 3, 5, 8}) {
    const auto windows = this->make(size);
    ASSERT_EQ(windows.size(), static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      Window& window = *windows[static_cast<std::size_t>(rank)];
      EXPECT_EQ(window.rank(), rank);
      EXPECT_EQ(window.size(), size);
      EXPECT_GE(window.bytes(), this->kBytes);
      EXPECT_EQ(window.lost(), -1);
      const std::size_t offset = *window.carve(64);
      EXPECT_EQ(offset, Window::kHeaderBytes);
      window.template own_word<std::uint64_t>(offset).store(100 + static_cast<unsigned>(rank));
    }
    for (const auto& window : windows) {
      for (int peer = 0; peer < size; ++peer) {
        EXPECT_EQ(window->template word<std::uint64_t>(peer, Window::kHeaderBytes).load(),
                  100 + static_cast<unsigned>(peer));
      }
    }
  }
}

TYPED_TEST_P(WindowSuite, CarvesAlikeZeroedAndUpToTheEnd) {
  const auto windows = this->make(2);
  Window& a = *windows[0];
  Window& b = *windows[1];
  for (const std::size_t bytes : {1UL, 64UL, 4096UL, 4097UL, 100'000UL}) {
    const Result<std::size_t> at = a.carve(bytes);
    const Result<std::size_t> same = b.carve(bytes);
    ASSERT_TRUE(at.is_ok() && same.is_ok());
    EXPECT_EQ(*at, *same);
    EXPECT_EQ(*at % 4096, 0U);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(a.of(1)[*at + i], std::byte{0});
    std::memset(b.own() + *at, 0xab, bytes);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(a.of(1)[*at + i], std::byte{0xab});
  }
  const Status full = a.carve(a.bytes()).status();
  EXPECT_EQ(full.code(), StatusCode::kResource);
  EXPECT_NE(full.text().find(std::to_string(a.bytes())), std::string::npos) << full.text();
  EXPECT_EQ(a.carve(SIZE_MAX).status().code(), StatusCode::kResource);
  EXPECT_TRUE(a.carve(a.bytes() - a.carved()).is_ok()) << "the rest, exactly";
  EXPECT_EQ(a.carve(1).status().code(), StatusCode::kResource);
}

TYPED_TEST_P(WindowSuite, AnArenaLiesWherePeersRead) {
  const auto windows = this->make(2);
  ASSERT_TRUE(windows[1]->carve(5000).is_ok());
  Arena arena(*windows[1]);
  const Result<void*> memory = arena.allocate(300'000);
  ASSERT_TRUE(memory.is_ok()) << memory.status().to_string();
  std::memset(*memory, 0x5c, 300'000);
  const auto offset = arena.offset_of(*memory, 300'000);
  ASSERT_TRUE(offset.has_value());
  for (std::size_t i = 0; i < 300'000; ++i) {
    ASSERT_EQ(windows[0]->of(1)[*offset + i], std::byte{0x5c});
  }
}

TYPED_TEST_P(WindowSuite, RingsOnlyWhoSleeps) {
  const auto windows = this->make(3);
  windows[0]->ring_all();
  EXPECT_EQ(windows[0]->counters().rings.load(), 0U);
  windows[2]->set_asleep(true);
  windows[0]->ring_all();
  EXPECT_EQ(windows[0]->counters().rings.load(), 1U);
  windows[0]->ring(1);
  EXPECT_EQ(windows[0]->counters().rings.load(), 1U);
  windows[2]->set_asleep(false);
  windows[0]->ring(2);
  EXPECT_EQ(windows[0]->counters().rings.load(), 1U);
}

// Edge-triggered: every ring is an event, though nobody ever reads the bell.
TYPED_TEST_P(WindowSuite, EveryRingWakesAPoller) {
  const auto windows = this->make(2);
  Result<Poller> poller = Poller::create();
  ASSERT_TRUE(poller.is_ok() && poller->add(windows[1]->bell()).is_ok());
  while (poller->poll()) {
  }
  windows[1]->set_asleep(true);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(poller->poll()) << i;
    windows[0]->ring(1);
    ASSERT_TRUE(i % 2 == 0 ? poller->poll() : poller->wait(10s)) << i;
  }
  poller->remove(windows[1]->bell());
}

TYPED_TEST_P(WindowSuite, NothingIsMissedInPingPong) {
  const auto windows = this->make(2);
  for (const auto& window : windows) ASSERT_TRUE(window->carve(64).is_ok());
  std::thread other([&] { ping_pong(*windows[1], kPingPongs, 1); });
  ping_pong(*windows[0], kPingPongs, 1);
  other.join();
}

// Sleepers and spinners by turns, in a ring of ranks, from seeds.
TYPED_TEST_P(WindowSuite, NothingIsMissedByASleeper) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int size = 2 + static_cast<int>(seed % 3);
    const auto windows = this->make(size);
    for (const auto& window : windows) ASSERT_TRUE(window->carve(64).is_ok());
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (const auto& window : windows) {
      threads.emplace_back([&, own = window.get()] {
        if (!pass_the_token(*own, 2000, seed)) ++failures;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures.load(), 0);
  }
}

TYPED_TEST_P(WindowSuite, LeavingIsNoDeath) {
  auto windows = this->make(3);
  ASSERT_TRUE(windows[0]->carve(64).is_ok());
  windows[0]->template own_word<std::uint32_t>(Window::kHeaderBytes).store(5);
  windows[0].reset();
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(windows[1]->lost(), -1);
  EXPECT_EQ(windows[2]->lost(), -1);
  EXPECT_EQ(windows[1]->template word<std::uint32_t>(0, Window::kHeaderBytes).load(), 5U)
      << "its memory stays as long as anyone reads it";
}

TYPED_TEST_P(WindowSuite, TheFirstWordThatIsLeftStays) {
  auto windows = this->make(3);
  EXPECT_EQ(windows[0]->word_left_by(1), 0U);
  windows[1]->leave_word(8);
  windows[1]->leave_word(9);
  windows[2]->leave_word(~std::uint64_t{0});
  for (const auto& window : windows) {
    EXPECT_EQ(window->word_left_by(0), 0U);
    EXPECT_EQ(window->word_left_by(1), 8U);
    EXPECT_EQ(window->word_left_by(2), ~std::uint64_t{0});
  }
  windows[1].reset();
  EXPECT_EQ(windows[2]->word_left_by(1), 8U);
}

REGISTER_TYPED_TEST_SUITE_P(WindowSuite, RanksSeeEachOthersWords, CarvesAlikeZeroedAndUpToTheEnd,
                            AnArenaLiesWherePeersRead, RingsOnlyWhoSleeps, EveryRingWakesAPoller,
                            NothingIsMissedInPingPong, NothingIsMissedByASleeper, LeavingIsNoDeath,
                            TheFirstWordThatIsLeftStays);

}  // namespace kolo::internal
