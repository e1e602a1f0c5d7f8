// Which connections a rank has: pure arithmetic over the table of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/fabric.h"
#include "transport/handshake.h"

namespace kolo::internal {

struct Link {
  int peer = -1;
  HandshakeRole role = HandshakeRole::kData;
  std::uint32_t stream = 0;
  bool operator==(const Link&) const = default;
};

// The lowest rank of the host of `rank`.
[[nodiscard]] int leader_of(const PeerTable& table, int rank);

// Whether two ranks exchange control frames: a member and its leader, a leader and the root.
[[nodiscard]] bool have_control(const PeerTable& table, int a, int b);

// The ranks with which `self` exchanges them.
[[nodiscard]] std::vector<int> linked_ranks(const PeerTable& table, int self);

// Every connection of `self`, by peer: `streams` for data to each, and control where due.
[[nodiscard]] std::vector<Link> links_of(const PeerTable& table, int self, int streams);

}  // namespace kolo::internal
