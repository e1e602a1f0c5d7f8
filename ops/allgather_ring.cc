#include "ops/allgather_ring.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kolo::internal {

void RingWalk::reset(std::span<const Range> blocks, std::size_t segment_bytes, int first) {
  blocks_ = blocks;
  segment_bytes_ = segment_bytes;
  block_ = static_cast<std::size_t>(first);
  segment_ = 0;
  left_ = blocks.size() - 1;
  skip_empty();
}

Range RingWalk::segment() const { return segment_of(blocks_[block_], segment_bytes_, segment_); }

void RingWalk::next() {
  ++segment_;
  skip_empty();
}

void RingWalk::skip_empty() {
  while (left_ > 0 && segment_ == segment_count(blocks_[block_].count, segment_bytes_)) {
    block_ = (block_ + blocks_.size() - 1) % blocks_.size();
    segment_ = 0;
    --left_;
  }
}

void AllgatherRing::start(const Communicator& communicator, const void* input, void* output,
                          std::span<const std::size_t> bytes) {
  begin(communicator);
  const std::size_t segment = segment_bytes(2);  // there is one peer in each direction
  KOLO_CHECK(size() >= 2 && bytes.size() == static_cast<std::size_t>(size()));
  lay_out(bytes, blocks_);
  input_ = static_cast<const std::byte*>(input);
  output_ = static_cast<std::byte*>(output);
  sends_.reset(1);
  receives_.reset(1);
  sending_.reset(blocks_, segment, rank());
  receiving_.reset(blocks_, segment, (rank() + size() - 1) % size());
  const Range own = blocks_[static_cast<std::size_t>(rank())];
  own_segments_ = segment_count(own.count, segment);
  sent_ = 0;
  expected_ = 0;
  arrived_ = 0;
  copied_bytes_ = own.count == 0 || input_ == output_ + own.begin ? own.count : 0;
  post_all();
}

void AllgatherRing::post_all() {
  const int right = (rank() + 1) % size();
  const int left = (rank() + size() - 1) % size();
  while (arrived_ < expected_ && receives_.at(0, arrived_).done) ++arrived_;
  for (; !receiving_.over() && expected_ < arrived_ + kSegmentsInFlight; ++expected_) {
    const Range range = receiving_.segment();
    post_receive(left, receives_.at(0, expected_), 0, expected_, output_ + range.begin,
                 range.count);
    receiving_.next();
  }
  for (; !sending_.over() && sent_ < own_segments_ + arrived_ && sends_.at(0, sent_).done;
       ++sent_) {
    const Range range = sending_.segment();
    const Range own = blocks_[static_cast<std::size_t>(rank())];
    const std::byte* data =
        sent_ < own_segments_ ? input_ + (range.begin - own.begin) : output_ + range.begin;
    post_send(right, sends_.at(0, sent_), 0, sent_, data, range.count);
    sending_.next();
  }
}

bool AllgatherRing::step() {
  const Range own = blocks_[static_cast<std::size_t>(rank())];
  const std::size_t copy = std::min(own.count - copied_bytes_, kCopyStepBytes);
  if (copy > 0) {
    std::memcpy(output_ + own.begin + copied_bytes_, input_ + copied_bytes_, copy);
  }
  copied_bytes_ += copy;
  post_all();
  if (copied_bytes_ == own.count && sending_.over() && receiving_.over() && sends_.all_done() &&
      receives_.all_done()) {
    complete();
  }
  return copy > 0;
}

}  // namespace kolo::internal
