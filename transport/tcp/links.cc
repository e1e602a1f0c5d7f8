#include "transport/tcp/links.h"

#include <algorithm>

namespace kolo::internal {

int leader_of(const PeerTable& table, int rank) {
  const int host = table.peers[static_cast<std::size_t>(rank)].host_index;
  for (const PeerInfo& peer : table.peers) {
    if (peer.host_index == host) return peer.rank;
  }
  return rank;
}

bool have_control(const PeerTable& table, int a, int b) {
  if (a == b) return false;
  const auto [low, high] = std::minmax(a, b);
  const int leader = leader_of(table, high);
  if (leader == low) return true;     // a member and its leader
  return leader == high && low == 0;  // a leader and the root
}

std::vector<int> linked_ranks(const PeerTable& table, int self) {
  std::vector<int> ranks;
  for (const PeerInfo& peer : table.peers) {
    if (have_control(table, self, peer.rank)) ranks.push_back(peer.rank);
  }
  return ranks;
}

std::vector<Link> links_of(const PeerTable& table, int self, int streams) {
  std::vector<Link> links;
  for (const PeerInfo& peer : table.peers) {
    if (peer.rank == self) continue;
    for (std::uint32_t stream = 0; stream < static_cast<std::uint32_t>(streams); ++stream) {
      links.push_back({peer.rank, HandshakeRole::kData, stream});
    }
    if (have_control(table, self, peer.rank)) {
      links.push_back({peer.rank, HandshakeRole::kControl, 0});
    }
  }
  return links;
}

}  // namespace kolo::internal
