// All-gather and broadcast over a window: sources show what they have, the others pull it.
//
// Up to kOneshotBytes:
//   1. a source copies its bytes into its staging
//   2. the others copy them out
// Above, in tiles:
//   1. a source packs a tile into the ring (packing publishes); if its bytes lie in its arena it
//      says where, and packs nothing
//   2. the others pull tile after tile of every source
//
// Cost: 1 step; a source copies its bytes once (in an arena not at all), and whoever pulls them
// once. No deadlock: the oldest tile that some rank has not pulled has room in every ring.
// A source with its bytes in the arena is done when all have pulled them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/window/window_operation.h"

namespace kolo::internal {

class WindowPull final : public WindowOperation {
 public:
  // From `root`, or from all when there is none. What comes from source s goes to output +
  // places[s] * bytes; without `places`, s in an all-gather and 0 in a broadcast. Input counts on
  // sources only, and may be in its place of the output. `arena_place`: of the input.
  void start(WindowLane& lane, std::optional<int> root, const void* input, void* output,
             std::size_t bytes, std::optional<std::size_t> arena_place,
             std::span<const int> places = {});

 private:
  WindowLane::Places enter() override;
  bool step() override;
  bool step_small();
  bool pull_next();
  bool pack_tile();
  bool keep_own();
  [[nodiscard]] bool nobody_reads_here();
  [[nodiscard]] bool is_source(int peer) const { return !root_ || *root_ == peer; }
  [[nodiscard]] std::byte* output_of(int source) const;
  [[nodiscard]] Range tile_range(std::uint64_t tile) const {
    return segment_of({0, bytes_}, WindowLane::kTileBytes, static_cast<std::size_t>(tile));
  }

  std::optional<int> root_;
  std::optional<std::size_t> arena_place_;
  std::vector<int> places_;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::size_t bytes_ = 0;
  bool small_ = false;
  std::uint64_t tiles_ = 0;
  std::uint64_t packed_ = 0;
  std::uint64_t kept_ = 0;    // tiles of the own input that are in the own output
  std::uint64_t pulled_ = 0;  // tiles that are here from all sources
  int next_ = 1;              // the source whose turn it is: that many ranks further
  bool read_arenas_ = false;  // of others
};

}  // namespace kolo::internal
