// Pure index arithmetic: balanced slices of a tensor, segments of a slice, turns of the ring.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace kolo::internal {

struct Range {
  std::size_t begin = 0;
  std::size_t count = 0;
  [[nodiscard]] constexpr std::size_t end() const { return begin + count; }
  bool operator==(const Range&) const = default;
};

// One rank's bytes in a tensor that holds those of several.
struct Block {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  [[nodiscard]] constexpr std::size_t end() const { return offset + bytes; }
};

// bytes[r] of each rank, close together in rank order.
inline void lay_out(std::span<const std::size_t> bytes, std::vector<Block>& blocks) {
  blocks.clear();
  std::size_t offset = 0;
  for (std::size_t of_rank : bytes) {
    blocks.push_back({offset, of_rank});
    offset += of_rank;
  }
}

// Slice `index` of `elements` over `parts`: contiguous, sizes differ by at most one, larger first.
constexpr Range balanced_slice(std::size_t elements, std::size_t parts, std::size_t index) {
  const std::size_t base = elements / parts;
  const std::size_t larger = elements % parts;
  return {.begin = index * base + std::min(index, larger),
          .count = base + (index < larger ? 1 : 0)};
}

// counts[r] elements of each rank, close together in rank order.
inline void lay_out(std::span<const std::size_t> counts, std::vector<Range>& blocks) {
  blocks.clear();
  std::size_t begin = 0;
  for (std::size_t count : counts) {
    blocks.push_back({begin, count});
    begin += count;
  }
}

constexpr std::size_t segment_count(std::size_t elements, std::size_t segment_elements) {
  return elements / segment_elements + (elements % segment_elements != 0 ? 1 : 0);
}

// Segment `index` of `slice`; empty past its end.
constexpr Range segment_of(Range slice, std::size_t segment_elements, std::size_t index) {
  if (index >= segment_count(slice.count, segment_elements)) return {slice.end(), 0};
  const std::size_t begin = index * segment_elements;
  return {.begin = slice.begin + begin, .count = std::min(segment_elements, slice.count - begin)};
}

// The part `index` of a tile: like balanced_slice, but cut between cache lines (the tile begins on
// one), so that two ranks never write into the same line.
constexpr Range line_slice(Range tile, std::size_t line_elements, std::size_t parts,
                           std::size_t index) {
  const Range lines = balanced_slice(segment_count(tile.count, line_elements), parts, index);
  const std::size_t begin = std::min(lines.begin * line_elements, tile.count);
  const std::size_t end = std::min(lines.end() * line_elements, tile.count);
  return {.begin = tile.begin + begin, .count = end - begin};
}

// The ring of n ranks: in turn t (0 .. 2n-3) a rank sends one chunk to rank + 1 and receives one
// from rank - 1. Turns 0 .. n-2 scatter partial sums, the others gather results. The sum of chunk c
// starts at rank c + 1 and is complete at rank c.
constexpr int ring_turns(int size) { return 2 * (size - 1); }
constexpr int ring_reducing_turns(int size) { return size - 1; }
constexpr bool ring_turn_reduces(int size, int turn) { return turn < ring_reducing_turns(size); }
constexpr int ring_send_chunk(int size, int rank, int turn) {
  return ((rank - 1 - turn) % size + size) % size;
}
constexpr int ring_receive_chunk(int size, int rank, int turn) {
  return ring_send_chunk(size, rank, turn + 1);
}

}  // namespace kolo::internal
