// What a road gives to a context once it stands: the table of ranks, a control link and channels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/channel.h"
#include "transport/control_link.h"
#include "transport/net/refusals.h"

namespace kolo::internal {

struct PeerInfo {
  int rank = -1;
  // The launcher's; hosts are numbered in rank order of their first rank. -1, before the ranks have
  // met: as their names tell.
  int host_index = 0;
  int local_rank = 0;  // place among the ranks of its host; -1, before: as it follows from the rest
  std::string host;    // a name for people
  std::int64_t pid = 0;
  std::vector<std::string> endpoints;  // "address:port", IPv6 in brackets; most preferred first
  std::string settings;                // opaque to the transport: what core compares between ranks
};

// Who is in the job, in rank order. Leaders are the lowest rank of each host; rank 0 is the root.
struct PeerTable {
  std::vector<PeerInfo> peers;
  std::uint64_t generation = 0;
};

struct Fabric {
  PeerTable table;
  std::unique_ptr<ControlLink> control;
  // channels[stream][peer]; the entry of this rank itself is null.
  std::vector<std::vector<std::unique_ptr<Channel>>> channels;
  // No descriptor tells when a channel could move (MPI): while it matters, ask it.
  bool polled = false;
  RefusalCounts refused;  // at this rank's own ports, while they were open
};

}  // namespace kolo::internal
