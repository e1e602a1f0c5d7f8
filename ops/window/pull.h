// Pulling over a window: sources show what they have, the others copy it out. What all-gather,
// broadcast and all-to-all share.
//
// A source with little to show:
//   1. copies it into its staging
//   2. the others copy it out
// With more, in tiles:
//   1. packs a tile into the ring (packing publishes); if its bytes lie in its arena it says where,
//      and packs nothing
//   2. the others pull part after part of every source
//
// Cost: 1 step; a source copies its bytes once (in an arena not at all), and whoever pulls them
// once. No deadlock: the oldest tile that some rank has not pulled has room in every ring.
// A source with its bytes in the arena is done when all have pulled everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ops/window/window_operation.h"

namespace kolo::internal {

class WindowPull : public WindowOperation {
 protected:
  struct Pulled {
    std::span<const Block> from;  // by source: how much, and where in the output
    std::byte* output = nullptr;
    const std::byte* own_input = nullptr;    // of this rank's block; may be its place in the output
    std::optional<std::size_t> arena_place;  // of this rank's whole input
    std::size_t part_bytes = 0;              // of a source's tile, what is for one rank
    std::size_t part_offset = 0;             // in a tile, of what is for this one
  };
  // First thing in a start(); `pulled.from` is copied.
  void begin_pull(WindowLane& lane, const Pulled& pulled);
  // Before the first step() of here: `tiles` of the ring are used, `own_tiles` are this rank's.
  void set_tiles(std::uint64_t tiles, std::uint64_t own_tiles);

  bool step() override;

  // What a source that has entered has for this rank in its staging, if that is where it shows it.
  virtual const std::byte* staged(int source) = 0;
  // Where in a source's input begins what it has for this rank.
  virtual std::size_t input_offset(int source) = 0;
  // Packs this rank's tile.
  virtual void pack(std::uint64_t tile) = 0;

  [[nodiscard]] const std::optional<std::size_t>& arena_place() const { return arena_place_; }
  [[nodiscard]] const Block& from(int source) const {
    return from_[static_cast<std::size_t>(source)];
  }
  bool keep_own();

 private:
  bool pull_next();
  bool pack_next();
  const std::byte* find(int source, Range part);
  [[nodiscard]] bool nobody_reads_here();

  std::vector<Block> from_;
  std::byte* output_ = nullptr;
  const std::byte* own_input_ = nullptr;
  std::optional<std::size_t> arena_place_;
  std::size_t part_bytes_ = 0;
  std::size_t part_offset_ = 0;
  std::uint64_t tiles_ = 0;
  std::uint64_t own_tiles_ = 0;
  std::uint64_t rounds_ = 0;  // what is staged takes one too
  std::uint64_t packed_ = 0;
  std::uint64_t pulled_ = 0;  // rounds that are here from all sources
  std::size_t kept_ = 0;      // bytes of the own block that are in the own output
  int next_ = 1;              // the source whose turn it is: that many ranks further
  bool read_arenas_ = false;  // of others
};

}  // namespace kolo::internal
