// Two-shot all-reduce over a window, in tiles, several of them under way.
//
//   1. pack a tile of the tensors into the ring (packing publishes); of a lone tensor not this
//   rank's
//      own share, which nobody else reads
//   2. when all have packed it, reduce this rank's share of it, in the canonical order, into the
//      ring of results, and copy that to the outputs
//   3. when all have reduced it, pull the others' shares into the outputs
// A lone tensor whose input lies in an arena is read there and not packed; whose output lies in an
// arena, reduced right into it and pulled from there. Every rank reads of every other what it has
// posted on entering, so ranks may differ in this.
//
// Cost: 2 steps. In ordinary memory a rank copies its tensor twice, a lone one 2 - 1/n times; in an
// arena (n-1)/n of it once.
// Memory: two rings of tiles, for any size.
//
// No deadlock. Let m be the oldest tile that some rank has not pulled: all words have reached m, so
// every rank has room for tiles m .. m + kTiles - 1 in both rings, packs m, reduces m, pulls m.
//
// In place nothing is overwritten while it is needed. A rank's share of a tile is read by that rank
// alone, so reducing may replace it. The rest of the tile is replaced in step 3, when its owners
// have reduced it, so nobody reads it any more. A rank with a tensor in its arena is done when all
// have pulled everything.
#pragma once

#include <span>
#include <vector>

#include "ops/window/peer_tensors.h"
#include "ops/window/window_operation.h"

namespace kolo::internal {

class WindowTwoShot final : public WindowOperation {
 public:
  // `places`: of a lone tensor in the arena.
  void start(WindowLane& lane, const ReductionOrder& order, std::span<const Piece> pieces,
             const Reduction& reduction, const WindowLane::Places& places);

 private:
  WindowLane::Places enter() override { return places_; }
  bool step() override;
  bool take();
  bool pull();
  bool pack_tile();
  void pack(Range range);
  [[nodiscard]] Range tile_range(std::uint64_t tile) const;
  [[nodiscard]] Range share(std::uint64_t tile, int owner) const;
  // How far into the tile's memory in a ring `range` begins, in bytes.
  [[nodiscard]] std::size_t offset_in(std::uint64_t tile, Range range) const;

  TensorGroup group_;
  WindowLane::Places places_;
  PeerTensors peers_;
  std::vector<const std::byte*> inputs_;
  std::size_t tile_elements_ = 0;
  std::uint64_t tiles_ = 0;
  std::uint64_t packed_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t pulled_ = 0;
};

}  // namespace kolo::internal
