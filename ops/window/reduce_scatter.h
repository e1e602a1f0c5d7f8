// Reduce-scatter over a window, in tiles, several of them under way: the first half of a two-shot.
//
//   1. pack a tile, which holds a like part of every block, into the ring (packing publishes); not
//      this rank's own part, which nobody else reads. A tensor in an arena is not packed
//   2. when all have packed it, reduce the part of this rank's block, in the canonical order, into
//      the output
//
// Cost: 1 step; a rank copies the others' blocks once (in an arena not at all) and reads its block
// of n ranks.
// Memory: a ring of tiles, for any size.
//
// No deadlock. Let m be the oldest tile that some rank has not reduced: all words kTaken have
// reached m, so every rank has room for tiles m .. m + kTiles - 1, packs m and reduces m.
//
// In place nothing is overwritten while it is needed: a rank's block of its own input is read by
// that rank alone, element by element as it is replaced. A rank with its tensor in an arena is done
// when all have reduced everything.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/block_tiles.h"
#include "ops/window/peer_tensors.h"
#include "ops/window/window_operation.h"

namespace kolo::internal {

class WindowReduceScatter final : public WindowOperation {
 public:
  // `piece`: the whole input, and this rank's block as output. `counts`: by rank. `arena_place`: of
  // the input.
  void start(WindowLane& lane, const ReductionOrder& order, const Piece& piece,
             std::span<const std::size_t> counts, const Reduction& reduction,
             std::optional<std::size_t> arena_place);

 private:
  WindowLane::Places enter() override { return {.input = arena_place_, .output = {}}; }
  bool step() override;
  bool take();
  bool pack_tile();
  [[nodiscard]] bool nobody_reads_here();

  TensorGroup group_;
  BlockTiles cut_;
  PeerTensors peers_;
  std::optional<std::size_t> arena_place_;
  std::vector<const std::byte*> inputs_;
  std::uint64_t packed_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace kolo::internal
