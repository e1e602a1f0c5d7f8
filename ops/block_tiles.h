// BlockTiles: how the tensor of a reduce-scatter is cut into tiles. Each tile holds a like part of
// every rank's block, so that all ranks always have something to reduce, however ragged the blocks.
//
// Pure index arithmetic, in elements. No allocation once warm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "ops/slices.h"

namespace kolo::internal {

class BlockTiles {
 public:
  // `counts[r]` elements belong to rank r; a tile has room for `tile_elements`.
  void cut(std::span<const std::size_t> counts, std::size_t tile_elements) {
    // A part is rounded up to a whole element.
    KOLO_CHECK(counts.size() < tile_elements);
    blocks_.clear();
    offsets_.clear();
    elements_ = 0;
    for (std::size_t count : counts) {
      blocks_.push_back({elements_, count});
      elements_ += count;
    }
    tiles_ = segment_count(elements_, tile_elements - counts.size());
    std::size_t offset = 0;
    for (const Range& block : blocks_) {
      offsets_.push_back(offset);
      if (tiles_ > 0) offset += balanced_slice(block.count, tiles_, 0).count;
    }
  }

  [[nodiscard]] std::size_t elements() const { return elements_; }
  [[nodiscard]] std::uint64_t tiles() const { return tiles_; }
  [[nodiscard]] Range block(int rank) const { return blocks_[static_cast<std::size_t>(rank)]; }
  // What `tile` holds of the block of `rank`; no later part is larger than the first.
  [[nodiscard]] Range part(int rank, std::uint64_t tile) const {
    const Range whole = block(rank);
    const Range in_block = balanced_slice(whole.count, tiles_, static_cast<std::size_t>(tile));
    return {.begin = whole.begin + in_block.begin, .count = in_block.count};
  }
  // Where such a part lies in a tile.
  [[nodiscard]] std::size_t offset(int rank) const {
    return offsets_[static_cast<std::size_t>(rank)];
  }

 private:
  std::vector<Range> blocks_;         // [rank]
  std::vector<std::size_t> offsets_;  // [rank]
  std::size_t elements_ = 0;
  std::size_t tiles_ = 0;
};

}  // namespace kolo::internal
