// Ring all-gather: blocks of any size, none included, travel round the ring of ranks.
//
//   1. send this rank's block to rank + 1, segment by segment, several in flight
//   2. what comes from rank - 1 is received straight into its place of the output and sent on, but
//      for the block of rank + 1, which has come all the way
//
// Cost: n-1 steps, overlapped by segments. A rank sends every block but that of rank + 1 once, and
// receives every block but its own: no link carries more than the total, however uneven the blocks
// are (a long block leaves its rank n-1 times when all pairs are used). No staging.
//
// No deadlock: a rank posts receives in the order in which rank - 1 sends, W deep, and they wait
// for nothing but earlier ones. Only sends wait for receives, each for an earlier place of its own
// block's way round; the first sends, of own blocks, wait for nothing.
#pragma once

#include <span>
#include <vector>

#include "ops/channel_operation.h"
#include "ops/slices.h"

namespace kolo::internal {

// The segments that travel from one rank to the next: all blocks but one, in the order in which
// they come by. A pure walk.
class RingWalk {
 public:
  // From the block of `first` downwards, all but the last of the n.
  void reset(std::span<const Range> blocks, std::size_t segment_bytes, int first);
  [[nodiscard]] bool over() const { return left_ == 0; }
  [[nodiscard]] Range segment() const;  // unless over
  void next();

 private:
  void skip_empty();

  std::span<const Range> blocks_;
  std::size_t segment_bytes_ = 1;
  std::size_t block_ = 0;
  std::size_t segment_ = 0;
  std::size_t left_ = 0;  // blocks
};

class AllgatherRing final : public ChannelOperation {
 public:
  // At least two ranks; bytes[r] of rank r. The input may be this rank's block of the output.
  void start(const Communicator& communicator, const void* input, void* output,
             std::span<const std::size_t> bytes);

 private:
  bool step() override;
  void post_all();

  std::vector<Range> blocks_;  // of the output, in bytes
  RingWalk sending_, receiving_;
  TransferWindow sends_, receives_;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::size_t own_segments_ = 0;  // sent first; segment own_segments_ + k is what came as k
  std::size_t sent_ = 0;
  std::size_t expected_ = 0;
  std::size_t arrived_ = 0;
  std::size_t copied_bytes_ = 0;  // of the own block
};

}  // namespace kolo::internal
