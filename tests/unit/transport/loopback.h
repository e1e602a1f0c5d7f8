// What tests of the TCP road share: a job's identity, tables, and meshes of ranks as threads.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "transport/poller.h"
#include "transport/rendezvous/rendezvous.h"
#include "transport/tcp/tcp_fabric.h"

namespace kolo::internal {

inline JobIdentity test_identity() { return {"test job", "a secret of sufficient length"}; }

inline PeerInfo test_peer(int rank, int host_index = 0) {
  PeerInfo peer;
  peer.rank = rank;
  peer.host_index = host_index;
  peer.host = "host-" + std::to_string(host_index);
  peer.pid = 1000 + rank;
  return peer;
}

struct MeshRank {
  std::unique_ptr<Poller> poller;
  Result<Fabric> fabric = Status(StatusCode::kInternal, "not connected");
};

struct MeshPlan {
  int size = 2;
  std::vector<int> host_index = {};  // of each rank; empty: all on host 0
  TcpOptions options{2, {"127.0.0.1"}, 10s};
  int absent = -1;  // this rank listens, but never connects
};

// All ranks connect at once, each on a thread of its own.
inline std::vector<MeshRank> connect_mesh(const MeshPlan& plan) {
  PeerTable table;
  table.generation = 1;
  std::vector<std::unique_ptr<TcpListener>> listeners;
  for (int rank = 0; rank < plan.size; ++rank) {
    auto listener = TcpListener::open(plan.options.addresses);
    EXPECT_TRUE(listener.is_ok()) << listener.status().to_string();
    const auto at = static_cast<std::size_t>(rank);
    table.peers.push_back(test_peer(rank, plan.host_index.empty() ? 0 : plan.host_index[at]));
    table.peers.back().endpoints = (*listener)->endpoints();
    listeners.push_back(std::move(*listener));
  }
  std::vector<std::future<MeshRank>> futures;
  for (int rank = 0; rank < plan.size; ++rank) {
    futures.push_back(std::async(std::launch::async, [&, rank] {
      MeshRank made;
      made.poller = std::make_unique<Poller>(std::move(*Poller::create()));
      if (rank == plan.absent) return made;
      made.fabric = tcp_connect(*listeners[static_cast<std::size_t>(rank)], test_identity(), table,
                                rank, plan.options, *made.poller);
      return made;
    }));
  }
  std::vector<MeshRank> ranks;
  for (auto& future : futures) ranks.push_back(future.get());
  return ranks;
}

}  // namespace kolo::internal
