#include "ops/window/peer_tensors.h"

namespace kolo::internal {

void PeerTensors::reset(WindowLane& lane) {
  lane_ = &lane;
  places_.resize(static_cast<std::size_t>(lane.size()));
  met_ = 0;
  read_arenas_ = false;
}

bool PeerTensors::meet() {
  for (; met_ < lane_->size() && lane_->entered(met_); ++met_) {
    const WindowLane::Places places = lane_->places(met_);
    places_[static_cast<std::size_t>(met_)] = places;
    read_arenas_ = read_arenas_ || (met_ != lane_->rank() && (places.input || places.output));
  }
  return met_ == lane_->size();
}

bool PeerTensors::tiles_are_here(std::uint64_t number) {
  for (int peer = 0; peer < lane_->size(); ++peer) {
    if (peer != lane_->rank() && !places(peer).input &&
        !lane_->reached(WindowLane::kPacked, peer, number + 1)) {
      return false;
    }
  }
  return true;
}

const std::byte* PeerTensors::input(int peer, std::size_t begin, std::size_t bytes,
                                    std::uint64_t number, std::size_t offset) const {
  const auto& place = places(peer).input;
  return place ? lane_->memory(peer, *place + begin, bytes) : lane_->tile(peer, number) + offset;
}

}  // namespace kolo::internal
