// Two exchanges over words of a window, run by every rank, in threads or processes. Both use the
// first word behind the header, which must have been carved.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <thread>

#include "transport/poller.h"
#include "transport/window.h"

namespace kolo::internal {

inline constexpr std::uint64_t kPingPongs = 100'000;

// Two ranks, both waiting by looking, 100,000 times to and fro.
inline void ping_pong(Window& window, std::uint64_t rounds, std::uint64_t first) {
  auto& mine = window.own_word<std::uint64_t>(Window::kHeaderBytes);
  const auto& theirs = window.word<std::uint64_t>(1 - window.rank(), Window::kHeaderBytes);
  for (std::uint64_t round = first; round < first + rounds; ++round) {
    if (window.rank() == 0) mine.store(round);
    while (theirs.load() != round) std::this_thread::yield();
    if (window.rank() != 0) mine.store(round);
  }
}

// A token goes round; who waits for it looks a few times (by the seed) and then sleeps on its
// bell, as the window's header says. False: a wake-up was missed.
inline bool pass_the_token(Window& window, std::uint64_t rounds, unsigned seed) {
  std::mt19937 random(seed * 1000 + static_cast<unsigned>(window.rank()));
  Result<Poller> poller = Poller::create();
  if (!poller || !poller->add(window.bell())) return false;
  auto& mine = window.own_word<std::uint64_t>(Window::kHeaderBytes);
  const int before = (window.rank() + window.size() - 1) % window.size();
  const auto& theirs = window.word<std::uint64_t>(before, Window::kHeaderBytes);
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    if (window.rank() == 0) {
      mine.store(round);
      window.ring((window.rank() + 1) % window.size());
    }
    for (unsigned looks = random() % 4; theirs.load() < round; looks = looks > 0 ? looks - 1 : 0) {
      if (looks > 0) {
        std::this_thread::yield();
        continue;
      }
      window.set_asleep(true);
      const bool woken = theirs.load() >= round || poller->wait(20s);
      window.set_asleep(false);
      if (!woken) return false;
    }
    if (window.rank() != 0) {
      mine.store(round);
      window.ring((window.rank() + 1) % window.size());
    }
  }
  return true;
}

}  // namespace kolo::internal
