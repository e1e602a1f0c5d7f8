// Mesh: a full mesh of channels between `size` ranks that all live in this test's thread, and the
// factory by which a conformance suite is given one road after another.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/channel.h"

namespace kolo::internal {

struct Mesh {
  std::shared_ptr<void> owner;  // whatever the channels need; destroyed after them
  std::vector<std::vector<std::unique_ptr<Channel>>> rows;  // [rank][peer]; null at [r][r]
  std::function<void()> idle = [] {};  // called when no channel moved (e.g. to look at a poller)

  ~Mesh() { rows.clear(); }
  Mesh() = default;
  Mesh(Mesh&&) = default;
  Mesh& operator=(Mesh&&) = default;
};

struct Road {
  std::string name;
  std::function<Mesh(int size, std::uint64_t seed)> make;
  bool sampled = false;                // a slow road: of the many small cases a random part
  std::size_t whole_bytes = SIZE_MAX;  // a message up to this is never half-way where that breaks
};

inline std::string road_name(const Road& road) { return road.name; }

// Whether `done` came true while calling `work` over and over, within a bounded time.
template <typename Done, typename Work>
bool drive_until(const Done& done, const Work& work) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int turn = 0; !done(); ++turn) {
    if (turn % 64 == 63 && std::chrono::steady_clock::now() > limit) return false;
    work();
  }
  return true;
}

}  // namespace kolo::internal
