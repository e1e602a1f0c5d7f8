#include "core/context_window.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ops/window/lane.h"
#include "transport/inproc/inproc_window.h"
#include "transport/shm/shm_window.h"
#include "transport/tcp/links.h"
#include "transport/tcp/mesh_agreement.h"

namespace kolo::internal {
namespace {

constexpr Nanos kLeastForNews = 300ms;  // that a rank of this host did not answer in time

// Process sets of more different ranks than that use the channels.
constexpr std::size_t kSetLanes = 64;

// The local ranks have met at the rendezvous a moment ago.
constexpr Nanos kQuiet = 3s;
// Where they can do without, and nothing but the start would wait: less than a verdict may take.
constexpr Nanos kQuietToWatch = 500ms;

std::vector<int> ranks_of_my_host(const PeerTable& table, int rank) {
  std::vector<int> ranks;
  const int host = table.peers[static_cast<std::size_t>(rank)].host_index;
  for (const PeerInfo& peer : table.peers) {
    if (peer.host_index == host) ranks.push_back(peer.rank);
  }
  return ranks;
}

bool any_host_has_two(const PeerTable& table) {
  return std::any_of(table.peers.begin(), table.peers.end(), [&](const PeerInfo& peer) {
    return ranks_of_my_host(table, peer.rank).size() > 1;
  });
}

// Nobody else's, even if jobs have the same name: where the first rank listens is its own within
// a network namespace, and Unix sockets without a file are found within one.
std::string place_of(const JobIdentity& identity, const PeerTable& table, int first) {
  std::string place = identity.job + "|" + std::to_string(table.generation);
  for (const std::string& endpoint : table.peers[static_cast<std::size_t>(first)].endpoints) {
    place += "|" + endpoint;
  }
  return place;
}

ShmOptions options_of(const RankAtStart& self, const PeerTable& table,
                      const std::vector<int>& local, Nanos limit) {
  ShmOptions options;
  options.rank = static_cast<int>(std::find(local.begin(), local.end(), self.rank) - local.begin());
  options.size = static_cast<int>(local.size());
  options.place = place_of(self.identity, table, local.front());
  options.identity = self.identity;
  options.watch = &self.watch;
  options.limit = limit;
  options.quiet = kQuiet;
  return options;
}

Result<std::unique_ptr<Window>> meet(const Config& config, const RankAtStart& self,
                                     const PeerTable& table, Nanos limit) {
  const std::vector<int> local = ranks_of_my_host(table, self.rank);
  const auto bytes = static_cast<std::size_t>(config.integer("shm_bytes"));
  if (local.size() == 1) {
    auto windows = make_inproc_windows(1, bytes);
    if (!windows) return windows.status();
    return std::move(windows->front());
  }
  ShmOptions options = options_of(self, table, local, limit);
  options.bytes = bytes;
  return meet_shm(options);
}

Status carve(const Config& config, SharedMemory& memory) {
  Window& window = *memory.window;
  const std::uint32_t slots =
      SlotBoard::slots_for(static_cast<std::size_t>(config.integer("cache_capacity")));
  const Result<std::size_t> board = window.carve(SlotBoard::bytes(slots));
  if (!board) return board.status();
  std::vector<const std::byte*> all;
  for (int rank = 0; rank < window.size(); ++rank) all.push_back(window.of(rank) + *board);
  memory.board = std::make_unique<SlotBoard>(slots, window.rank(), window.own() + *board, all);
  for (std::int64_t stream = 0; stream < config.integer("streams"); ++stream) {
    const Result<std::size_t> lane = window.carve(WindowLane::kBytes);
    if (!lane) return lane.status();
    memory.lanes.push_back(*lane);
  }
  // Most of a small segment is for kolo_alloc.
  const std::size_t set_lanes = std::min(kSetLanes, window.bytes() / 4 / WindowLane::kBytes);
  while (memory.set_lanes.size() < set_lanes) {
    const Result<std::size_t> lane = window.reserve(WindowLane::kBytes);
    if (!lane) return lane.status();
    memory.set_lanes.push_back(*lane);
  }
  memory.arena = std::make_unique<Arena>(window);
  return Status::ok();
}

Result<SharedMemory> make(const Config& config, const RankAtStart& self, const PeerTable& table,
                          Nanos limit) {
  auto window = meet(config, self, table, limit);
  if (!window) return window.status();
  SharedMemory memory;
  memory.window = *std::move(window);
  KOLO_RETURN_IF_ERROR(carve(config, memory));
  return memory;
}

// The word that all ranks hear of one that cannot.
Status cannot_share(const Config& config, const PeerInfo& self) {
  return resource_error("rank " + std::to_string(self.rank) + " on " + self.host +
                        " cannot share its " + std::to_string(config.integer("shm_bytes")) +
                        " bytes of memory, and transport=" + config.text("transport") +
                        " insists on it; see that rank's error, or use auto");
}

}  // namespace

Result<SharedMemory> share_memory(const Config& config, const RankAtStart& self, Fabric& fabric,
                                  Nanos limit, Poller& poller, Logger& logger) {
  const int rank = self.rank;
  const PeerTable& table = fabric.table;
  if (!any_host_has_two(table)) return SharedMemory();
  const SteadyClock clock;
  const Nanos deadline = clock.now() + limit;
  auto memory = make(config, self, table, limit);
  const std::string transport = config.text("transport");
  const bool insists = transport == "shm" || transport == "shm+mpi";
  Status own;
  if (!memory) own = self.watch.lost();
  if (!memory && own) own = cannot_share(config, table.peers[static_cast<std::size_t>(rank)]);
  const Status agreed = agree(*fabric.control, linked_ranks(table, rank), table, rank, own, poller,
                              std::max(deadline, clock.now() + kLeastForNews));
  if (agreed.is_ok()) {
    memory->window->map_carved();
    return memory;
  }
  if (agreed.code() == StatusCode::kPeerLost) return cause_of(agreed, &self.watch);
  if (insists && !memory) return memory.status();
  if (insists || agreed.code() != StatusCode::kResource) return agreed;
  // One word of the job: from the first rank that knows why.
  if (agreed.text() == own.text()) {
    logger.warning("the ranks of this host share no memory and use sockets instead: " +
                   memory.status().text());
  }
  return SharedMemory();
}

std::unique_ptr<Witness> watch_each_other(const RankAtStart& self, const PeerTable& table,
                                          Nanos limit, Logger& logger) {
  const std::vector<int> local = ranks_of_my_host(table, self.rank);
  if (local.size() == 1) return nullptr;
  ShmOptions options = options_of(self, table, local, limit);
  options.place += "|watch";
  options.quiet = kQuietToWatch;
  Result<std::unique_ptr<Witness>> witness = meet_to_watch(options);
  if (witness) return *std::move(witness);
  logger.info("the ranks of this host see each other die by their connections only: " +
              witness.status().text());
  return nullptr;
}

}  // namespace kolo::internal
