// Ring all-reduce: chunks travel round the ring of ranks, gathering sums, then spreading them. And
// the reduce-scatter, which is its first half with the ranks' blocks as chunks.
//
// The line (TensorGroup::Layout::kChunked) has one chunk per rank; every chunk is cut in segments,
// and segment g of all chunks makes one round of 2(n-1) turns (ops/slices.h). W rounds are in
// progress at once, so that every link is busy in every turn.
//   1. turn 0: send this rank's chunk as a partial sum (accumulator type)
//   2. turns 0 .. n-3: fold this rank's contribution into the partial that came and send it on
//   3. turn n-2: the partial that came is complete with this rank's contribution: finish (avg,
//      postscale, rounding) into the output and send the result
//   4. later turns (reduce-scatter: none): results come straight into the output and are sent on
//
// Cost: 2(n-1) steps; a rank sends and receives 2 (n-1)/n x bytes (16-bit types and averages of
// integers: their partials are wider). Reduce-scatter: n-1 steps; a rank sends every block but its
// own, and receives every block but that of rank - 1; links are idle in the turns of short blocks.
// The order of the sum of an element: from rank c + 1, with c its chunk in its own tensor, upwards
// round the ring to rank c. So equal blocks get the bits of a ring all-reduce.
//
// No deadlock. A rank enters round g when its round g - W is over (all its sends and receives are
// done), and posts every receive of a round on entering it; each has memory of its own, so it waits
// for nothing. (In place, the first result may come only after turn 0 has left: it comes because of
// that.) Take the rank with the oldest unfinished round, m. A stream X -> Y is held up only by a
// message of a round that Y has not entered, g >= oldest(Y) + W; X has entered it, so X has
// finished a round at least as new as m, with all its messages of m in front. So all messages of m
// flow, and in a round each turn waits for the one before only.
#pragma once

#include <span>
#include <vector>

#include "ops/channel_operation.h"
#include "ops/tensor_group.h"

namespace kolo::internal {

class AllreduceRing final : public ChannelOperation {
 public:
  // At least two ranks.
  void start(const Communicator& communicator, std::span<const Piece> pieces,
             const Reduction& reduction);
  // A reduce-scatter: counts[r] elements of rank r. See Collectives.
  void start(const Communicator& communicator, const Piece& piece,
             std::span<const std::size_t> counts, const Reduction& reduction);

 private:
  // One turn of one round in progress.
  struct Turn {
    Transfer send;
    Transfer receive;
    bool receive_posted = false;
    bool handled = false;  // what came has been used, and sent on if it had to be
  };

  bool step() override;
  void run(int turns);
  void enter(std::size_t round);
  bool move_round(std::size_t round, bool& reduced);
  bool handle(std::size_t round, int turn, bool& reduced);
  void post_first_result(std::size_t round);
  [[nodiscard]] bool over(std::size_t round) const;
  void post_turn_send(std::size_t round, int turn, const std::byte* data, std::size_t bytes);
  void post_turn_receive(std::size_t round, int turn);

  [[nodiscard]] Range segment(int chunk, std::size_t round) const;
  [[nodiscard]] Turn& turn(std::size_t round, int turn);
  [[nodiscard]] const Turn& turn(std::size_t round, int turn) const;
  // Where turn `index` receives its partial; index n-1: this rank's own lifted chunk.
  [[nodiscard]] std::byte* partial(std::size_t round, int index) const;
  [[nodiscard]] int right() const { return (rank() + 1) % size(); }
  [[nodiscard]] int left() const { return (rank() + size() - 1) % size(); }

  TensorGroup group_;
  std::vector<Range> chunks_;  // of the line, by rank
  std::vector<Turn> turns_;    // [rounds in progress][turns]
  int turns_of_round_ = 0;
  Staging staging_;
  std::byte* stage_ = nullptr;
  std::size_t slot_bytes_ = 0;
  std::size_t segment_elements_ = 0;
  std::size_t rounds_ = 0;
  std::size_t oldest_ = 0;   // rounds below are over
  std::size_t entered_ = 0;  // rounds below have been entered
  bool lift_is_copy_ = false;
  bool packed_ = false;
};

}  // namespace kolo::internal
