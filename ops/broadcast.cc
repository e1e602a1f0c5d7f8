#include "ops/broadcast.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kolo::internal {
namespace {

// Up to here a second step costs more than the root's repeated sends.
constexpr std::size_t kWholeBytes = std::size_t{32} << 10;

}  // namespace

void Broadcast::start(const Communicator& communicator, int root, const void* input, void* output,
                      std::size_t bytes) {
  begin(communicator);
  KOLO_CHECK(root >= 0 && root < size());
  sends_.reset(size());
  receives_.reset(size());
  peers_.assign(static_cast<std::size_t>(size()), {});
  root_ = root;
  output_ = static_cast<std::byte*>(output);
  source_ = rank() == root ? static_cast<const std::byte*>(input) : output_;
  bytes_ = bytes;
  segment_ = segment_bytes(size());
  copied_bytes_ = source_ == output_ ? bytes : 0;
  arrived_ = 0;
  whole_ = size() <= 2 || bytes <= kWholeBytes;
  post_all();
}

Range Broadcast::slice(int from, int to) const {
  if (from == to || to == root_) return {};
  if (whole_) return from == root_ ? Range{0, bytes_} : Range{};
  const int owner = from == root_ ? to : from;
  const auto place = static_cast<std::size_t>(owner < root_ ? owner : owner - 1);
  return balanced_slice(bytes_, peers_.size() - 1, place);
}

std::size_t Broadcast::arrived() {
  const std::size_t posted = peers_[static_cast<std::size_t>(root_)].expected;
  while (arrived_ < posted && receives_.at(root_, arrived_).done) ++arrived_;
  return arrived_;
}

void Broadcast::post_sends(int peer) {
  const Range range = slice(rank(), peer);
  std::size_t limit = segment_count(range.count, segment_);
  if (rank() != root_) limit = std::min(limit, arrived());
  std::size_t& sent = peers_[static_cast<std::size_t>(peer)].sent;
  for (; sent < limit && sends_.at(peer, sent).done; ++sent) {
    const Range segment = segment_of(range, segment_, sent);
    post_send(peer, sends_.at(peer, sent), 0, sent, source_ + segment.begin, segment.count);
  }
}

void Broadcast::post_receives(int peer) {
  const Range range = slice(peer, rank());
  const std::size_t segments = segment_count(range.count, segment_);
  std::size_t& expected = peers_[static_cast<std::size_t>(peer)].expected;
  // What came from the root must be counted as arrived before its slot is used again.
  const std::size_t limit =
      peer == root_ ? std::min(segments, arrived() + kSegmentsInFlight) : segments;
  for (; expected < limit && receives_.at(peer, expected).done; ++expected) {
    const Range segment = segment_of(range, segment_, expected);
    post_receive(peer, receives_.at(peer, expected), 0, expected, output_ + segment.begin,
                 segment.count);
  }
}

void Broadcast::post_all() {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    post_receives(peer);
    post_sends(peer);
  }
}

bool Broadcast::finished() const {
  if (copied_bytes_ != bytes_ && rank() == root_) return false;
  for (int peer = 0; peer < size(); ++peer) {
    const Peer& progress = peers_[static_cast<std::size_t>(peer)];
    if (progress.sent != segment_count(slice(rank(), peer).count, segment_) ||
        progress.expected != segment_count(slice(peer, rank()).count, segment_)) {
      return false;
    }
  }
  return sends_.all_done() && receives_.all_done();
}

bool Broadcast::step() {
  std::size_t copy = 0;
  if (rank() == root_) {
    copy = std::min(bytes_ - copied_bytes_, kCopyStepBytes);
    if (copy > 0) std::memcpy(output_ + copied_bytes_, source_ + copied_bytes_, copy);
    copied_bytes_ += copy;
  }
  post_all();
  if (finished()) complete();
  return copy > 0;
}

}  // namespace kolo::internal
