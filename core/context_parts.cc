#include "core/context_parts.h"

#include <algorithm>
#include <functional>
#include <thread>

namespace kolo::internal {
namespace {

Nanos milliseconds_or_never(std::int64_t ms) {
  return ms == 0 ? kNever : Nanos(std::chrono::milliseconds(ms));
}

}  // namespace

SequencerOptions sequencer_options(const Config& config) {
  SequencerOptions options;
  options.cache_capacity = static_cast<std::size_t>(config.integer("cache_capacity"));
  options.fusion.threshold_bytes =
      static_cast<std::uint64_t>(config.integer("fusion_threshold_bytes"));
  options.fusion.tensor_bytes = static_cast<std::uint64_t>(config.integer("fusion_tensor_bytes"));
  options.stall_warning = milliseconds_or_never(config.integer("stall_warning_ms"));
  options.stall_abort = milliseconds_or_never(config.integer("stall_abort_ms"));
  options.inline_allreduce = config.text("algorithm") != "ring";
  options.mixed_memory = config.text("mixed_memory") == "staged";
  return options;
}

// What NCCL takes for one host: kolo's own, unless it was told another one.
std::uint64_t host_for_nccl(const Road& road) {
  const std::string named = Config::foreign("NCCL_HOSTID");
  if (!named.empty()) return std::hash<std::string>()(named);
  const auto rank = static_cast<std::size_t>(road.rank);
  return static_cast<std::uint64_t>(road.fabric.table.peers[rank].host_index);
}

DeviceLane::Options lane_options(const Config& config, const Road& road) {
  DeviceLane::Options options;
  options.staged_only = config.flag("deterministic");
  options.whole = config.text("algorithm") == "ring";
  options.pack_bytes = static_cast<std::size_t>(config.integer("pack_tensor_bytes"));
  options.rank.by_nccl = config.text("cuda") == "auto";
  options.rank.host = host_for_nccl(road);
  options.rank.may_share = Config::foreign("NCCL_MULTI_RANK_GPU_ENABLE") == "1";
  const auto start_timeout = std::chrono::milliseconds(config.integer("start_timeout_ms"));
  const auto shutdown_timeout = std::chrono::milliseconds(config.integer("shutdown_timeout_ms"));
  options.limits = {start_timeout, start_timeout, shutdown_timeout, 500ms};
  options.stall_warning = milliseconds_or_never(config.integer("stall_warning_ms"));
  options.patience = std::chrono::milliseconds(config.integer("peer_timeout_ms"));
  return options;
}

std::vector<int> hosts_of(const PeerTable& table) {
  std::vector<int> hosts;
  for (const PeerInfo& peer : table.peers) hosts.push_back(peer.host_index);
  return hosts;
}

std::vector<std::string> host_names_of(const PeerTable& table) {
  std::vector<std::string> names;
  for (const PeerInfo& peer : table.peers) names.push_back(peer.host);
  return names;
}

Executor::Options executor_options(const Config& config, const Road& road) {
  return {road.rank, *parse_algorithm(config.text("algorithm"))};
}

std::vector<std::vector<Channel*>> channels_of(const Fabric& fabric) {
  std::vector<std::vector<Channel*>> channels;
  for (const auto& stream : fabric.channels) {
    channels.emplace_back();
    for (const auto& channel : stream) channels.back().push_back(channel.get());
  }
  return channels;
}

Executor::Streams streams_of(const Config& config, const Road& road,
                             const std::vector<std::vector<Channel*>>& channels,
                             const ReductionOrder& order, const HostMap& map) {
  const AlgorithmChoice choice = *parse_algorithm(config.text("algorithm"));
  const bool shares = road.memory.window != nullptr && choice != AlgorithmChoice::kRing;
  Executor::Streams streams;
  for (std::size_t stream = 0; stream < channels.size(); ++stream) {
    const Communicator communicator{road.rank, map.size(), channels[stream], &order, 0};
    if (shares) {
      streams.push_back(
          std::make_unique<HostsCollectives>(*road.memory.window, road.memory.lanes[stream],
                                             road.memory.arena.get(), map, communicator));
    } else {
      streams.push_back(std::make_unique<ChannelCollectives>(communicator, choice));
    }
  }
  return streams;
}

WaitPolicy wait_policy(const Config& config, int local_size) {
  return WaitPolicy::choose(local_size, std::thread::hardware_concurrency(),
                            std::chrono::microseconds(config.integer("spin_us")));
}

int count_local(const Road& road) {
  const auto& peers = road.fabric.table.peers;
  const int host = peers[static_cast<std::size_t>(road.rank)].host_index;
  return static_cast<int>(std::count_if(peers.begin(), peers.end(), [host](const PeerInfo& peer) {
    return peer.host_index == host;
  }));
}

}  // namespace kolo::internal
