#include "ops/allreduce_oneshot.h"

#include <algorithm>

namespace kolo::internal {

void AllreduceOneshot::start(const Communicator& communicator, std::span<const Piece> pieces,
                             const Reduction& reduction) {
  begin(communicator);
  group_.start(pieces, reduction, *communicator.order, TensorGroup::Layout::kWhole);
  sends_.reset(size());
  receives_.reset(size());
  inputs_.resize(static_cast<std::size_t>(size()));
  segment_elements_ = segment_bytes(size()) / group_.element_size();
  segments_ = segment_count(group_.elements(), segment_elements_);
  const std::size_t slots = std::min(segments_, kSegmentsInFlight);
  const std::size_t bytes = std::min(segment_elements_, group_.elements()) * group_.element_size();
  slot_bytes_ = (bytes + 63) / 64 * 64;
  stage_ = staging_.reserve(slot_bytes_ * slots * static_cast<std::size_t>(size() - 1));
  posted_ = 0;
  reduced_ = 0;
  packed_ = group_.pack_some();
  if (packed_) post_window();
}

Range AllreduceOneshot::segment(std::size_t index) const {
  return segment_of({0, group_.elements()}, segment_elements_, index);
}

std::byte* AllreduceOneshot::staged(int peer, std::size_t segment) const {
  const auto place = static_cast<std::size_t>(peer < rank() ? peer : peer - 1);
  const std::size_t peers = static_cast<std::size_t>(size() - 1);
  return stage_ + (segment % kSegmentsInFlight * peers + place) * slot_bytes_;
}

void AllreduceOneshot::post_window() {
  for (; posted_ < std::min(segments_, reduced_ + kSegmentsInFlight); ++posted_) {
    for (int peer = 0; peer < size(); ++peer) {
      if (!sends_.at(peer, posted_).done) return;
    }
    const Range range = segment(posted_);
    const std::size_t bytes = range.count * group_.element_size();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      post_receive(peer, receives_.at(peer, posted_), 0, posted_, staged(peer, posted_), bytes);
      post_send(peer, sends_.at(peer, posted_), 0, posted_, group_.input(range.begin), bytes);
    }
  }
}

bool AllreduceOneshot::reduce_next() {
  if (reduced_ == posted_) return false;
  // In place the result replaces what is being sent. (A fused group's goes to the pieces.)
  const bool overwrites = group_.in_place() && !group_.fused();
  for (int peer = 0; peer < size(); ++peer) {
    if (!receives_.at(peer, reduced_).done) return false;
    if (overwrites && !sends_.at(peer, reduced_).done) return false;
  }
  const Range range = segment(reduced_);
  for (int peer = 0; peer < size(); ++peer) {
    inputs_[static_cast<std::size_t>(peer)] =
        peer == rank() ? group_.input(range.begin) : staged(peer, reduced_);
  }
  group_.reduce_to_pieces(range, inputs_);
  ++reduced_;
  return true;
}

bool AllreduceOneshot::step() {
  if (!packed_) {
    packed_ = group_.pack_some();
    if (packed_) post_window();
    return true;
  }
  const bool reduced = reduce_next();
  post_window();
  if (reduced_ == segments_ && sends_.all_done()) complete();
  return reduced;
}

}  // namespace kolo::internal
