// Direct all-reduce: reduce-scatter to the slices' owners, then all-gather, all pairs, overlapped.
// And the reduce-scatter alone, whose slices are the ranks' blocks.
//
//   1. slice s of the line belongs to rank s; segment by segment, send every other owner its part
//   2. when segment g of this rank's slice is here from everybody, reduce it in the canonical order
//      into the output
//   3. send the result to everybody; their results are received straight into the output
//      (reduce-scatter: not done)
//
// Cost: 2 steps; a rank sends and receives 2 (n-1)/n x bytes. Reduce-scatter: 1 step; a rank sends
// all but its own block, and receives n-1 times that. Staging: W segments of n-1 peers.
// The bits are those of the one-shot: same order, same kernels.
//
// No deadlock. Let reduced(q) be the segments that rank q has reduced of its own slice, W the
// segments in flight. Rank p sends segment g of step 1 once g < reduced(p) + W (or all of its own
// are reduced), and keeps receives for its segments below reduced(p) + W. Receives of step 3 are
// posted W deep in order and depend on nothing but this rank's own step-1 send of that segment,
// which the owner has received before it answers. Now take the rank q with the fewest, r.
//   * Every p may send q segment r, because r < reduced(p) + W; whatever lies before it in the
//     stream p -> q is of step 1 below r (received), or of step 3 (always accepted).
//   * q's own results up to r - W are accepted: in q's streams they have before them step-1
//     segments below r only, for which every p keeps or has had a receive.
// So q reduces r. When a rank has reduced everything, only results are on their way, and those are
// always accepted.
#pragma once

#include <span>
#include <vector>

#include "ops/channel_operation.h"
#include "ops/tensor_group.h"

namespace kolo::internal {

class AllreduceDirect final : public ChannelOperation {
 public:
  void start(const Communicator& communicator, std::span<const Piece> pieces,
             const Reduction& reduction);
  // A reduce-scatter: counts[r] elements of rank r. See Collectives.
  void start(const Communicator& communicator, const Piece& piece,
             std::span<const std::size_t> counts, const Reduction& reduction);

 private:
  // How far each half has come with one peer, in segments.
  struct PeerProgress {
    std::size_t segments = 0;          // of that peer's slice
    std::size_t parts_sent = 0;        // step 1: posted
    std::size_t results_expected = 0;  // step 3: receives posted
  };

  bool step() override;
  void run();
  void post_all();
  void post_part_receives();
  void post_part_sends(int peer);
  void post_result_receives(int peer);
  bool reduce_next();
  [[nodiscard]] bool finished() const;
  [[nodiscard]] Range segment(int owner, std::size_t index) const;
  [[nodiscard]] std::byte* staged(int peer, std::size_t segment) const;

  TensorGroup group_;
  TransferWindow part_sends_, part_receives_, result_sends_, result_receives_;
  Staging staging_;
  std::byte* stage_ = nullptr;
  std::size_t slot_bytes_ = 0;
  std::vector<const std::byte*> inputs_;
  std::vector<PeerProgress> peers_;
  std::vector<Range> slices_;  // by owner
  bool gathers_ = true;        // an all-reduce
  std::size_t segment_elements_ = 0;
  std::size_t own_segments_ = 0;
  std::size_t parts_expected_ = 0;  // own segments whose receives are posted
  std::size_t reduced_ = 0;         // own segments
  bool packed_ = false;
};

}  // namespace kolo::internal
