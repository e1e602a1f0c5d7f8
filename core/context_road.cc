#include "core/context_road.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "transport/inproc/inproc_channel.h"
#include "transport/inproc/inproc_control.h"
#include "transport/tcp/tcp_fabric.h"

namespace kolo::internal {
namespace {

// Options that must be equal everywhere: rank 0's values count.
constexpr std::array<std::string_view, 8> kSharedOptions = {
    "algorithm", "cache_capacity",   "fusion_tensor_bytes", "fusion_threshold_bytes",
    "streams",   "stall_warning_ms", "stall_abort_ms",      "peer_timeout_ms"};

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

std::string host_name(const Config& config) {
  if (config.is_set("host_name")) return config.text("host_name");
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

Result<JobIdentity> identity_of(const Config& config) {
  JobIdentity identity{config.text("job"), config.text("secret")};
  if (identity.secret.empty() && config.is_set("secret_file")) {
    std::ifstream file(config.text("secret_file"));
    std::getline(file, identity.secret);
    if (!file && identity.secret.empty()) {
      return invalid_argument("secret_file: cannot read a secret from '" +
                              config.text("secret_file") +
                              "'. Write one line of at least 16 "
                              "random characters there, the same for every rank");
    }
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

Result<Road> road_over_tcp(Config& config, Logger& logger, Road road) {
  const Nanos limit = std::chrono::milliseconds(config.integer("start_timeout_ms"));
  const int size = static_cast<int>(config.integer("size"));
  Result<JobIdentity> identity = identity_of(config);
  if (!identity) return identity.status();
  std::string endpoint = config.text("rendezvous");
  if (endpoint.empty()) {
    return invalid_argument("a job of " + std::to_string(size) +
                            " ranks needs a place to meet. Start it with kolorun, or set "
                            "KOLO_RENDEZVOUS=host:port, the same for every rank");
  }
  auto listener = TcpListener::open(addresses_of(config));
  if (!listener) return listener.status();
  if (road.rank == 0 && !config.is_set("launcher")) {
    auto server = RendezvousServer::start(endpoint, size, *identity, limit);
    if (!server) return server.status();
    road.server = *std::move(server);
  }
  const PeerInfo self{road.rank,
                      static_cast<int>(config.integer("host_index")),
                      static_cast<int>(config.integer("local_rank")),
                      host_name(config),
                      static_cast<std::int64_t>(::getpid()),
                      (*listener)->endpoints(),
                      shared_settings(config)};
  auto client = RendezvousClient::join(endpoint, *identity, size, self, limit);
  if (!client) return client.status();
  road.client = *std::move(client);
  const PeerTable& table = road.client->table();
  KOLO_RETURN_IF_ERROR(adopt_settings(table.peers.front().settings, config, logger));
  const TcpOptions options{static_cast<int>(config.integer("streams")), {}, limit};
  auto fabric = tcp_connect(**listener, *identity, table, road.rank, options, *road.poller);
  if (!fabric) return fabric.status();
  road.fabric = *std::move(fabric);
  road.name = "tcp";
  return road;
}

}  // namespace

Result<Road> build_road(Config& config, Logger& logger) {
  Road road;
  road.rank = static_cast<int>(config.integer("rank"));
  auto poller = Poller::create();
  if (!poller) return poller.status();
  road.poller = std::make_unique<Poller>(*std::move(poller));
  if (config.integer("size") == 1) return road_of_one(config, logger, std::move(road));
  return road_over_tcp(config, logger, std::move(road));
}

}  // namespace kolo::internal
