#include "transport/mpi/mpi_fabric.h"

#include <string>

#include "transport/mpi/mpi_channel.h"

namespace kolo::internal {

Result<std::vector<std::vector<std::unique_ptr<Channel>>>> mpi_channels(
    const std::shared_ptr<MpiWorld>& world, const PeerTable& table, int self, int streams) {
  if (world->largest_tag() / MpiAddress::kTagsPerDirection < streams) {
    return Status(StatusCode::kUnsupported,
                  "transport mpi: " + world->version() + " has tags up to " +
                      std::to_string(world->largest_tag()) + " only; lower KOLO_STREAMS");
  }
  std::vector<std::vector<std::unique_ptr<Channel>>> channels;
  for (int stream = 0; stream < streams; ++stream) {
    auto& row = channels.emplace_back();
    for (const PeerInfo& peer : table.peers) {
      const int tag = stream * MpiAddress::kTagsPerDirection;  // MPI tells directions by the sender
      row.push_back(peer.rank == self
                        ? nullptr
                        : std::make_unique<MpiChannel>(
                              world, MpiAddress{peer.rank, tag, tag},
                              "rank " + std::to_string(peer.rank) + " (host " + peer.host + ")"));
    }
  }
  return channels;
}

}  // namespace kolo::internal
