#include "core/set_roads.h"

#include <algorithm>
#include <utility>

#include "core/context_parts.h"
#include "ops/window/lane.h"

namespace kolo::internal {

SetRoads::SetRoads(Road& road, const std::vector<std::vector<Channel*>>& channels,
                   AlgorithmChoice choice)
    : road_(road), channels_(channels), host_of_(hosts_of(road.fabric.table)), choice_(choice) {}

Result<SetRoads::Opened> SetRoads::open(const ProcessSet& set) {
  const auto parked = parked_.find(set.ranks);
  if (parked != parked_.end()) {
    open_.emplace(set.id, std::move(parked->second));
    parked_.erase(parked);
  } else {
    Result<SetRoad> made = build(set);
    if (!made) return made.status();
    open_.emplace(set.id, *std::move(made));
  }
  const SetRoad& road = open_.at(set.id);
  if (road.collectives != nullptr) places_[set.id] = {road.stream, road.scope};
  return Opened{road.collectives.get(), road.stream};
}

void SetRoads::close(const ProcessSet& set) {
  auto node = open_.extract(set.id);
  if (!node.empty()) parked_.emplace(set.ranks, std::move(node.mapped()));
}

void SetRoads::drop(std::uint32_t process_set) {
  const auto drop_on = [this](std::size_t stream, std::uint32_t scope) {
    for (Channel* channel : channels_[stream]) {
      if (channel != nullptr) channel->drop(scope);
    }
  };
  if (process_set == 0) {
    for (std::size_t stream = 0; stream < channels_.size(); ++stream) drop_on(stream, 0);
  } else if (const auto place = places_.find(process_set); place != places_.end()) {
    const Place& at = place->second;
    const bool passed_on = std::ranges::any_of(open_, [&](const auto& open) {
      return open.first != process_set && open.second.stream == at.stream &&
             open.second.scope == at.scope;
    });
    if (!passed_on) drop_on(at.stream, at.scope);
  }
}

int SetRoads::broken_peer(std::size_t stream, const Status& status) const {
  for (std::size_t rank = 0; rank < channels_[stream].size(); ++rank) {
    Channel* const channel = channels_[stream][rank];
    if (channel == nullptr) continue;
    const Status seen = channel->advance();
    if (seen.code() == status.code() && seen.text() == status.text()) return static_cast<int>(rank);
  }
  return -1;
}

Result<SetRoads::SetRoad> SetRoads::build(const ProcessSet& set) {
  SetRoad made;
  const bool shares = road_.memory.window != nullptr && choice_ != AlgorithmChoice::kRing &&
                      lanes_used_ < road_.memory.set_lanes.size();
  const std::size_t lane = shares ? road_.memory.set_lanes[lanes_used_++] : 0;
  made.stream = built_++ % channels_.size();
  made.scope = set.id;
  if (set.place < 0) return made;
  std::vector<int> hosts;
  for (const int rank : set.ranks) {
    made.channels.push_back(channels_[made.stream][static_cast<std::size_t>(rank)]);
    hosts.push_back(host_of_[static_cast<std::size_t>(rank)]);
  }
  made.map = std::make_unique<HostMap>(hosts);
  made.order = std::make_unique<ReductionOrder>(hosts);
  const Communicator communicator{set.place,        set.size(), made.channels,
                                  made.order.get(), 0,          made.scope};
  if (shares) {
    KOLO_RETURN_IF_ERROR(build_shared(communicator, set, lane, made));
  } else {
    made.collectives = std::make_unique<ChannelCollectives>(communicator, choice_);
  }
  return made;
}

Status SetRoads::build_shared(const Communicator& communicator, const ProcessSet& set,
                              std::size_t lane, SetRoad& made) {
  KOLO_RETURN_IF_ERROR(road_.memory.window->commit(lane, WindowLane::kBytes));
  std::vector<int> members;  // as ranks of the window
  int place = 0;
  for (std::size_t rank = 0; rank < host_of_.size(); ++rank) {
    if (host_of_[rank] != host_of_[static_cast<std::size_t>(road_.rank)]) continue;
    if (set.place_of(static_cast<int>(rank)) >= 0) members.push_back(place);
    ++place;
  }
  made.window = std::make_unique<SubsetWindow>(*road_.memory.window, members);
  made.collectives = std::make_unique<HostsCollectives>(
      *made.window, lane, road_.memory.arena.get(), *made.map, communicator);
  return Status::ok();
}

}  // namespace kolo::internal
