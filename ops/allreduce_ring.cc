#include "ops/allreduce_ring.h"

#include <algorithm>

#include "base/check.h"

namespace kolo::internal {
namespace {

constexpr std::uint32_t kPhase = 0;  // rounds and turns are told apart by the segment's number

}  // namespace

void AllreduceRing::start(const Communicator& communicator, std::span<const Piece> pieces,
                          const Reduction& reduction) {
  KOLO_CHECK(communicator.size >= 2);
  begin(communicator);
  group_.start(pieces, reduction, *communicator.order, TensorGroup::Layout::kChunked);
  chunks_.clear();
  for (int c = 0; c < size(); ++c) chunks_.push_back(group_.chunk(c));
  run(ring_turns(size()));
}

void AllreduceRing::start(const Communicator& communicator, const Piece& piece,
                          std::span<const std::size_t> counts, const Reduction& reduction) {
  KOLO_CHECK(communicator.size >= 2);
  begin(communicator);
  group_.start({&piece, 1}, reduction, *communicator.order, TensorGroup::Layout::kWhole);
  lay_out(counts, chunks_);
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(size()));
  KOLO_CHECK(chunks_.back().end() == piece.count);
  group_.limit_output(chunks_[static_cast<std::size_t>(rank())].begin);
  run(ring_reducing_turns(size()));
}

void AllreduceRing::run(int turns) {
  turns_of_round_ = turns;
  turns_.resize(kSegmentsInFlight * static_cast<std::size_t>(turns));
  const std::size_t widest = group_.kernel().accumulator_bytes;
  segment_elements_ = segment_bytes(size()) / widest;
  std::size_t largest = 0;
  for (const Range& chunk : chunks_) largest = std::max(largest, chunk.count);
  rounds_ = segment_count(largest, segment_elements_);
  const std::size_t bytes = std::min(segment_elements_, largest) * widest;
  slot_bytes_ = (bytes + 63) / 64 * 64;
  const std::size_t slots = std::min(rounds_, kSegmentsInFlight);
  stage_ = staging_.reserve(slot_bytes_ * slots * static_cast<std::size_t>(size()));
  lift_is_copy_ = group_.lift_is_copy();
  oldest_ = 0;
  entered_ = 0;
  packed_ = group_.pack_some();
}

Range AllreduceRing::segment(int chunk, std::size_t round) const {
  return segment_of(chunks_[static_cast<std::size_t>(chunk)], segment_elements_, round);
}

AllreduceRing::Turn& AllreduceRing::turn(std::size_t round, int turn) {
  return turns_[round % kSegmentsInFlight * static_cast<std::size_t>(turns_of_round_) +
                static_cast<std::size_t>(turn)];
}

const AllreduceRing::Turn& AllreduceRing::turn(std::size_t round, int turn) const {
  return turns_[round % kSegmentsInFlight * static_cast<std::size_t>(turns_of_round_) +
                static_cast<std::size_t>(turn)];
}

std::byte* AllreduceRing::partial(std::size_t round, int index) const {
  return stage_ + (round % kSegmentsInFlight * static_cast<std::size_t>(size()) +
                   static_cast<std::size_t>(index)) *
                      slot_bytes_;
}

void AllreduceRing::post_turn_send(std::size_t round, int index, const std::byte* data,
                                   std::size_t bytes) {
  post_send(right(), turn(round, index).send, kPhase,
            round * static_cast<std::size_t>(turns_of_round_) + static_cast<std::size_t>(index),
            data, bytes);
}

void AllreduceRing::post_turn_receive(std::size_t round, int index) {
  const Range range = segment(ring_receive_chunk(size(), rank(), index), round);
  const bool reduces = ring_turn_reduces(size(), index);
  std::byte* data = reduces ? partial(round, index) : group_.output(range.begin);
  const std::size_t width = reduces ? group_.kernel().accumulator_bytes : group_.element_size();
  Turn& t = turn(round, index);
  t.receive_posted = true;
  post_receive(left(), t.receive, kPhase,
               round * static_cast<std::size_t>(turns_of_round_) + static_cast<std::size_t>(index),
               data, range.count * width);
}

void AllreduceRing::enter(std::size_t round) {
  const int first_result = size() - 1;
  for (int index = 0; index < turns_of_round_; ++index) {
    turn(round, index) = {.send = {.done = true}, .receive = {.done = true}};
    if (index != first_result) post_turn_receive(round, index);
  }
  const Range own = segment(ring_send_chunk(size(), rank(), 0), round);
  const std::byte* data = group_.input(own.begin);
  if (!lift_is_copy_) {
    group_.lift(own, partial(round, first_result));
    data = partial(round, first_result);
  }
  post_turn_send(round, 0, data, own.count * group_.kernel().accumulator_bytes);
}

// The first result comes back to the chunk that turn 0 sent.
void AllreduceRing::post_first_result(std::size_t round) {
  const int first_result = size() - 1;
  if (first_result >= turns_of_round_) return;
  if (!turn(round, first_result).receive_posted && turn(round, 0).send.done) {
    post_turn_receive(round, first_result);
  }
}

// Uses what turn `index` received. False if a reduction is due that has to wait its turn.
bool AllreduceRing::handle(std::size_t round, int index, bool& reduced) {
  const Range range = segment(ring_receive_chunk(size(), rank(), index), round);
  const int last = turns_of_round_ - 1;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  if (ring_turn_reduces(size(), index)) {
    if (reduced) return false;
    reduced = true;
    if (ring_turn_reduces(size(), index + 1)) {
      group_.fold(range, partial(round, index));
      data = partial(round, index);
      bytes = range.count * group_.kernel().accumulator_bytes;
    } else {
      group_.fold_finish(range, partial(round, index));
    }
  }
  if (index < last && data == nullptr) {
    data = group_.output(range.begin);
    bytes = range.count * group_.element_size();
  }
  if (index < last) post_turn_send(round, index + 1, data, bytes);
  turn(round, index).handled = true;
  return true;
}

bool AllreduceRing::move_round(std::size_t round, bool& reduced) {
  bool moved = false;
  post_first_result(round);
  for (int index = 0; index < turns_of_round_; ++index) {
    const Turn& t = turn(round, index);
    if (t.handled) continue;
    if (!t.receive_posted || !t.receive.done) break;  // turns come one after the other
    if (!handle(round, index, reduced)) break;
    moved = true;
  }
  return moved;
}

bool AllreduceRing::over(std::size_t round) const {
  for (int index = 0; index < turns_of_round_; ++index) {
    const Turn& t = turn(round, index);
    if (!t.handled || !t.send.done) return false;
  }
  return true;
}

bool AllreduceRing::step() {
  if (!packed_) {
    packed_ = group_.pack_some();
    return true;
  }
  bool moved = false;
  bool reduced = false;
  if (entered_ < std::min(rounds_, oldest_ + kSegmentsInFlight)) {
    enter(entered_++);
    moved = true;
  }
  for (std::size_t round = oldest_; round < entered_; ++round) {
    moved = move_round(round, reduced) || moved;
  }
  while (oldest_ < entered_ && over(oldest_)) {
    ++oldest_;
    moved = true;
  }
  if (oldest_ < rounds_) return moved;
  if (group_.unpack_some()) complete();
  return true;
}

}  // namespace kolo::internal
