#include "ops/allreduce_direct.h"

#include <algorithm>

#include "base/check.h"

namespace kolo::internal {
namespace {

constexpr std::uint32_t kParts = 0;
constexpr std::uint32_t kResults = 1;

}  // namespace

void AllreduceDirect::start(const Communicator& communicator, std::span<const Piece> pieces,
                            const Reduction& reduction) {
  begin(communicator);
  group_.start(pieces, reduction, *communicator.order, TensorGroup::Layout::kWhole);
  gathers_ = true;
  slices_.clear();
  for (int owner = 0; owner < size(); ++owner) {
    slices_.push_back(balanced_slice(group_.elements(), static_cast<std::size_t>(size()),
                                     static_cast<std::size_t>(owner)));
  }
  run();
}

void AllreduceDirect::start(const Communicator& communicator, const Piece& piece,
                            std::span<const std::size_t> counts, const Reduction& reduction) {
  begin(communicator);
  group_.start({&piece, 1}, reduction, *communicator.order, TensorGroup::Layout::kWhole);
  gathers_ = false;
  lay_out(counts, slices_);
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(size()));
  KOLO_CHECK(slices_.back().end() == piece.count);
  group_.limit_output(slices_[static_cast<std::size_t>(rank())].begin);
  run();
}

void AllreduceDirect::run() {
  for (TransferWindow* window :
       {&part_sends_, &part_receives_, &result_sends_, &result_receives_}) {
    window->reset(size());
  }
  inputs_.resize(static_cast<std::size_t>(size()));
  peers_.assign(static_cast<std::size_t>(size()), {});
  segment_elements_ = segment_bytes(size()) / group_.element_size();
  for (int peer = 0; peer < size(); ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    peers_[p].segments = segment_count(slices_[p].count, segment_elements_);
  }
  own_segments_ = peers_[static_cast<std::size_t>(rank())].segments;
  const std::size_t slots = std::min(own_segments_, kSegmentsInFlight);
  const std::size_t bytes = segment(rank(), 0).count * group_.element_size();
  slot_bytes_ = (bytes + 63) / 64 * 64;
  stage_ = staging_.reserve(slot_bytes_ * slots * static_cast<std::size_t>(size() - 1));
  parts_expected_ = 0;
  reduced_ = 0;
  packed_ = group_.pack_some();
  if (packed_) post_all();
}

Range AllreduceDirect::segment(int owner, std::size_t index) const {
  return segment_of(slices_[static_cast<std::size_t>(owner)], segment_elements_, index);
}

std::byte* AllreduceDirect::staged(int peer, std::size_t segment) const {
  const auto place = static_cast<std::size_t>(peer < rank() ? peer : peer - 1);
  return stage_ + (segment % kSegmentsInFlight * (peers_.size() - 1) + place) * slot_bytes_;
}

void AllreduceDirect::post_all() {
  post_part_receives();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    post_part_sends(peer);
    if (gathers_) post_result_receives(peer);
  }
}

void AllreduceDirect::post_part_receives() {
  for (; parts_expected_ < std::min(own_segments_, reduced_ + kSegmentsInFlight);
       ++parts_expected_) {
    const std::size_t bytes = segment(rank(), parts_expected_).count * group_.element_size();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      post_receive(peer, part_receives_.at(peer, parts_expected_), kParts, parts_expected_,
                   staged(peer, parts_expected_), bytes);
    }
  }
}

void AllreduceDirect::post_part_sends(int peer) {
  PeerProgress& progress = peers_[static_cast<std::size_t>(peer)];
  const std::size_t limit = reduced_ == own_segments_
                                ? progress.segments
                                : std::min(progress.segments, reduced_ + kSegmentsInFlight);
  for (; progress.parts_sent < limit; ++progress.parts_sent) {
    Transfer& slot = part_sends_.at(peer, progress.parts_sent);
    if (!slot.done) return;
    const Range range = segment(peer, progress.parts_sent);
    post_send(peer, slot, kParts, progress.parts_sent, group_.input(range.begin),
              range.count * group_.element_size());
  }
}

void AllreduceDirect::post_result_receives(int peer) {
  PeerProgress& progress = peers_[static_cast<std::size_t>(peer)];
  for (; progress.results_expected < progress.segments; ++progress.results_expected) {
    const std::size_t next = progress.results_expected;
    Transfer& slot = result_receives_.at(peer, next);
    if (!slot.done) return;
    // In place the result lands where the part is sent from: not before that has left. (A part
    // whose slot has been taken by a later one is done.)
    if (group_.in_place() &&
        (next >= progress.parts_sent ||
         (progress.parts_sent - next <= kSegmentsInFlight && !part_sends_.at(peer, next).done))) {
      return;
    }
    const Range range = segment(peer, next);
    post_receive(peer, slot, kResults, next, group_.output(range.begin),
                 range.count * group_.element_size());
  }
}

bool AllreduceDirect::reduce_next() {
  if (reduced_ == parts_expected_) return false;
  for (int peer = 0; peer < size(); ++peer) {
    if (!part_receives_.at(peer, reduced_).done) return false;
    if (!result_sends_.at(peer, reduced_).done) return false;
  }
  const Range range = segment(rank(), reduced_);
  for (int peer = 0; peer < size(); ++peer) {
    inputs_[static_cast<std::size_t>(peer)] =
        peer == rank() ? group_.input(range.begin) : staged(peer, reduced_);
  }
  group_.reduce(range, inputs_, group_.output(range.begin));
  for (int peer = 0; gathers_ && peer < size(); ++peer) {
    if (peer == rank()) continue;
    post_send(peer, result_sends_.at(peer, reduced_), kResults, reduced_,
              group_.output(range.begin), range.count * group_.element_size());
  }
  ++reduced_;
  return true;
}

bool AllreduceDirect::finished() const {
  if (reduced_ != own_segments_) return false;
  for (int peer = 0; peer < size(); ++peer) {
    const PeerProgress& progress = peers_[static_cast<std::size_t>(peer)];
    if (peer != rank() && (progress.parts_sent != progress.segments ||
                           (gathers_ && progress.results_expected != progress.segments))) {
      return false;
    }
  }
  return part_sends_.all_done() && result_sends_.all_done() && result_receives_.all_done();
}

bool AllreduceDirect::step() {
  if (!packed_) {
    packed_ = group_.pack_some();
    if (packed_) post_all();
    return true;
  }
  const bool reduced = reduce_next();
  post_all();
  if (!finished()) return reduced;
  if (group_.unpack_some()) complete();
  return true;
}

}  // namespace kolo::internal
