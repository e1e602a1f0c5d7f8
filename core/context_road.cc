#include "core/context_road.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "core/context.h"
#include "core/descriptors.h"
#include "transport/inproc/inproc_channel.h"
#include "transport/inproc/inproc_control.h"
#include "transport/mpi/mpi_fabric.h"
#include "transport/pmi/pmi_meeting.h"
#include "transport/secret_file.h"
#include "transport/tcp/tcp_fabric.h"

namespace kolo::internal {
namespace {

// Options that must be equal everywhere: rank 0's values count.
constexpr std::array<std::string_view, 15> kSharedOptions = {"algorithm",
                                                             "cache_capacity",
                                                             "fusion_tensor_bytes",
                                                             "fusion_threshold_bytes",
                                                             "streams",
                                                             "shm_bytes",
                                                             "stall_warning_ms",
                                                             "stall_abort_ms",
                                                             "peer_timeout_ms",
                                                             "transport",
                                                             "checksum",
                                                             "mixed_memory",
                                                             "deterministic",
                                                             "pack_tensor_bytes",
                                                             "register_memory"};

// However late the ranks have connected.
constexpr Nanos kLeastForSharing = 300ms;

std::string shared_settings(const Config& config) {
  std::string settings;
  for (const std::string_view key : kSharedOptions) {
    settings += std::string(key) + "=" + config.text(key) + "\n";
  }
  return settings;
}

// Takes over rank 0's settings; says once where this rank's own differ.
Status adopt_settings(const std::string& settings, Config& config, Logger& logger) {
  std::istringstream lines(settings);
  std::string line;
  std::string differing;
  while (std::getline(lines, line)) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = line.substr(0, equals);
    const std::string value = line.substr(equals + 1);
    if (std::find(kSharedOptions.begin(), kSharedOptions.end(), key) == kSharedOptions.end()) {
      continue;
    }
    if (config.text(key) == value) continue;
    differing += (differing.empty() ? "" : ", ") + key + " (" + config.text(key) + " here, " +
                 value + " on rank 0)";
    KOLO_RETURN_IF_ERROR(config.set(key, value));
  }
  if (!differing.empty()) {
    logger.warning("rank 0's options count for the whole job; different here: " + differing);
  }
  return Status::ok();
}

std::string setting_of(const PeerInfo& peer, std::string_view key) {
  std::istringstream lines(peer.settings);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key) && line[key.size()] == '=') return line.substr(key.size() + 1);
  }
  return "";
}

// Seen by all ranks alike, so that none waits for one that has no such road.
Status check_transports(const PeerTable& table) {
  const std::string wanted = setting_of(table.peers.front(), "transport");
  for (const PeerInfo& peer : table.peers) {
    const std::string own = setting_of(peer, "transport");
    if (own.ends_with("mpi") == wanted.ends_with("mpi")) continue;
    return invalid_argument("transport is " + own + " on rank " + std::to_string(peer.rank) +
                            " (host " + peer.host + ") and " + wanted +
                            " on rank 0; set KOLO_TRANSPORT alike for all ranks");
  }
  return Status::ok();
}

std::string host_name(const Config& config) {
  if (config.is_set("host_name")) return config.text("host_name");
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

Result<JobIdentity> identity_of(const Config& config) {
  JobIdentity identity{config.text("job"), config.text("secret")};
  if (identity.secret.empty() && config.is_set("secret_file")) {
    Result<Secret> secret = read_secret_file(config.text("secret_file"));
    if (!secret) return secret.status();
    identity.secret = *std::move(secret);
  }
  if (identity.secret.size() < kMinSecretBytes) {
    return invalid_argument(
        "a job of several ranks needs a secret of at least 16 characters. Start it with kolorun, "
        "or set KOLO_SECRET_FILE to the same file for every rank");
  }
  return identity;
}

std::vector<std::string> addresses_of(const Config& config) {
  std::vector<std::string> addresses;
  std::istringstream text(config.text("addresses"));
  for (std::string address; std::getline(text, address, ',');) {
    if (!address.empty()) addresses.push_back(address);
  }
  if (addresses.empty()) addresses.emplace_back("127.0.0.1");
  return addresses;
}

Result<Road> road_of_one(const Config& config, Logger& logger, Road road) {
  if (!config.is_set("size") && config.flag("notice")) {
    logger.notice(
        "no launcher found: running as a job of one rank. Start it with kolorun -np N, or set "
        "KOLO_NOTICE=0 to hide this line");
  }
  InprocControlNetwork control({0});
  InprocNetwork network(1);
  road.name = "none";
  road.fabric.table.peers.push_back(
      {0, 0, 0, host_name(config), static_cast<std::int64_t>(::getpid()), {}, {}});
  road.fabric.table.generation = 1;
  road.fabric.control = control.link(0);
  road.fabric.channels = network.channels(0);
  return road;
}

// Where and how this rank meets the others.
struct Meeting {
  JobIdentity identity;
  std::string endpoint;
  std::vector<std::string> addresses;  // to listen on
};

// Under an MPI launcher: its store says it all.
Result<Meeting> meeting_by_pmi(Config& config, int fd, int size, Nanos limit, Road& road) {
  std::vector<std::string> addresses;
  if (config.is_set("addresses")) addresses = addresses_of(config);
  auto place = meet_by_pmi(fd, road.rank, size, std::move(addresses), limit);
  if (!place) return place.status();
  const std::pair<std::string_view, int> found[] = {{"local_rank", place->local_rank},
                                                    {"local_size", place->local_size},
                                                    {"host_index", place->host_index},
                                                    {"host_count", place->host_count}};
  for (const auto& [key, value] : found) {
    KOLO_RETURN_IF_ERROR(config.set(key, std::to_string(value)));
  }
  road.server = std::move(place->server);
  return Meeting{place->identity, place->endpoint, place->addresses};
}

Result<Meeting> meeting_of(Config& config, int size, Nanos limit, Road& road) {
  const std::string endpoint = config.text("rendezvous");
  if (config.text("launcher") == "pmi") {
    if (const auto fd = pmi_fd_of(endpoint)) return meeting_by_pmi(config, *fd, size, limit, road);
  }
  Result<JobIdentity> identity = identity_of(config);
  if (!identity) return identity.status();
  if (endpoint.empty()) {
    return invalid_argument("a job of " + std::to_string(size) +
                            " ranks needs a place to meet. Start it with kolorun, or set "
                            "KOLO_RENDEZVOUS=host:port, the same for every rank");
  }
  if (road.rank == 0 && !config.is_set("launcher")) {
    auto server = RendezvousServer::start(endpoint, size, *identity, limit);
    if (!server) return server.status();
    road.server = *std::move(server);
  }
  return Meeting{*identity, endpoint, addresses_of(config)};
}

// Puts MPI channels in the place of the fabric's.
Status use_mpi(const std::shared_ptr<MpiWorld>& mpi, int streams, Road& road) {
  KOLO_RETURN_IF_ERROR(mpi->duplicate());
  auto channels = mpi_channels(mpi, road.fabric.table, road.rank, streams);
  if (!channels) return channels.status();
  road.fabric.channels = *std::move(channels);
  road.fabric.polled = true;
  return Status::ok();
}

std::string name_of(const Road& road, bool by_mpi) {
  if (road.memory.window == nullptr) return by_mpi ? "mpi" : "tcp";
  const bool one_host =
      road.memory.window->size() == static_cast<int>(road.fabric.table.peers.size());
  return one_host ? "shm" : by_mpi ? "shm+mpi" : "shm+tcp";
}

// Whose end it is when the rendezvous ends.
std::string server_of(const Config& config) {
  return config.text("launcher") == "kolorun" ? "kolorun" : "rank 0";
}

// Connects a rank that has met the others with them.
Status connect_road(Config& config, Logger& logger, const JobIdentity& identity,
                    TcpListener& listener, const std::shared_ptr<MpiWorld>& mpi, Road& road) {
  const SteadyClock clock;
  const Nanos limit = std::chrono::milliseconds(config.integer("start_timeout_ms"));
  const Nanos deadline = clock.now() + limit;
  const bool by_mpi = mpi != nullptr;
  const PeerTable& table = road.client->table();
  KOLO_RETURN_IF_ERROR(check_transports(table));
  KOLO_RETURN_IF_ERROR(adopt_settings(table.peers.front().settings, config, logger));
  const std::string transport = config.text("transport");
  const int streams = static_cast<int>(config.integer("streams"));
  const TcpOptions options{
      by_mpi ? 0 : streams, {}, limit, config.flag("checksum"), road.client.get()};
  auto fabric = tcp_connect(listener, identity, table, road.rank, options, *road.poller);
  if (!fabric) return fabric.status();
  road.fabric = *std::move(fabric);
  if (by_mpi) KOLO_RETURN_IF_ERROR(use_mpi(mpi, streams, road));
  const RankAtStart self{identity, road.rank, *road.client};
  const auto left = [&] { return std::max(deadline - clock.now(), kLeastForSharing); };
  if (transport != "tcp" && transport != "mpi") {
    auto memory = share_memory(config, self, road.fabric, left(), *road.poller, logger);
    if (!memory) return memory.status();
    road.memory = *std::move(memory);
  }
  if (road.memory.window == nullptr) {
    road.watch = watch_each_other(self, table, left(), logger);
  }
  if (road.witness() != nullptr) {
    KOLO_RETURN_IF_ERROR(road.poller->add(road.witness()->bell()));
  }
  road.name = name_of(road, by_mpi);
  return Status::ok();
}

// Where this rank is; what it does not know is found when the ranks meet.
PeerInfo describe_self(const Config& config, int rank) {
  const auto place = [&](std::string_view key) {
    return config.is_set(key) ? static_cast<int>(config.integer(key)) : -1;
  };
  return {rank,
          place("host_index"),
          place("local_rank"),
          host_name(config),
          static_cast<std::int64_t>(::getpid()),
          {},
          shared_settings(config)};
}

// `obstacle`: why this rank cannot take part, if it is known so early.
Result<Road> road_of_several(Config& config, Logger& logger, const Status& obstacle, Road road) {
  const Nanos limit = std::chrono::milliseconds(config.integer("start_timeout_ms"));
  const int size = static_cast<int>(config.integer("size"));
  auto meeting = meeting_of(config, size, limit, road);
  if (!meeting) return meeting.status();
  config.forget("secret");  // the meeting has it; this context's configuration lives on
  PeerInfo self = describe_self(config, road.rank);
  const auto decline = [&](const Status& why) {
    RendezvousClient::decline(meeting->endpoint, meeting->identity, size, self, why);
    return why;
  };
  if (!obstacle) return decline(obstacle);
  std::shared_ptr<MpiWorld> mpi;
  if (config.text("transport").ends_with("mpi")) {
    auto world = MpiWorld::start(road.rank, size);
    if (!world) return decline(world.status());
    mpi = *std::move(world);
  }
  auto listener = TcpListener::open(meeting->addresses);
  if (!listener) return decline(listener.status());
  self.endpoints = (*listener)->endpoints();
  auto client = RendezvousClient::join(meeting->endpoint, meeting->identity, size, self, limit,
                                       server_of(config));
  if (client.status().code() == StatusCode::kResource) return decline(client.status());
  if (!client) return client.status();
  road.client = *std::move(client);
  if (Status status = connect_road(config, logger, meeting->identity, **listener, mpi, road);
      !status) {
    if (status.code() == StatusCode::kPeerLost) road.client->tell_harmed({-1, status.text()});
    return status;
  }
  return road;
}

}  // namespace

std::string mpi_module_found() { return find_mpi_module(); }

Result<Road> build_road(Config& config, Logger& logger) {
  Road road;
  road.rank = static_cast<int>(config.integer("rank"));
  const bool is_alone = config.integer("size") == 1;
  const Status room = make_room_for_descriptors(config);
  if (is_alone) KOLO_RETURN_IF_ERROR(room);
  auto poller = Poller::create();
  if (!poller) return poller.status();
  road.poller = std::make_unique<Poller>(*std::move(poller));
  return is_alone ? road_of_one(config, logger, std::move(road))
                  : road_of_several(config, logger, room, std::move(road));
}

}  // namespace kolo::internal
