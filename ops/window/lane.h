// WindowLane: the shared memory through which one stream of operations runs among the ranks of a
// window: a carved area at the same offset of every segment. A lane serves one operation at a time,
// and all ranks run the same operations on it in the same order, so its counters never go back.
//
// What an area holds, written by its owner only:
//   mail      one line for each of two operations in turn: "I am in operation k", where my tensors
//             lie in the segment, and a contribution of up to 40 bytes itself
//   staging   the same for contributions of up to kOneshotBytes
//   tiles     a ring of tiles into which tensors are packed, numbered over all operations
//   results   a ring of as many tiles, for the parts that this rank has reduced
//   words     how far this rank is, in tiles:
//     kPacked  its tiles below may be read
//     kTaken   of the others' tiles below it needs no more; in an all-reduce its own part of the
//              result is there
//     kPulled  of the others' results below it needs no more
//
// Two rules keep anything from being overwritten while it is read. Nobody enters operation k before
// all have entered k - 1, and so finished k - 2. A place in a ring is used again kTiles later, when
// the words of all others say so. Every operation ends with all words at the end of its tiles.
//
// Threads: one at a time (of each rank).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ops/tensor_group.h"
#include "transport/window.h"

namespace kolo::internal {

class WindowLane {
 public:
  enum Word { kPacked, kTaken, kPulled };

  static constexpr std::size_t kTileBytes = std::size_t{256} << 10;
  static constexpr std::uint64_t kTiles = 4;
  static constexpr std::size_t kOneshotBytes = std::size_t{32} << 10;
  // Of the area that every rank carves for a lane.
  static constexpr std::size_t kBytes =
      4096 + 2 * kOneshotBytes + 2 * static_cast<std::size_t>(kTiles) * kTileBytes;

  // What the others should know of this rank's operation.
  struct Places {
    std::optional<std::size_t> input;  // offset in the segment
    std::optional<std::size_t> output;
  };
  // Bytes that have been copied, counted where it happens.
  struct Counters {
    std::uint64_t bytes_packed = 0;
    std::uint64_t bytes_unpacked = 0;
  };

  // Before a lane that others had is made anew: every rank clears its part while nobody uses it,
  // and only when all have done so is one constructed.
  static void clear(Window& window, std::size_t offset);
  // The window outlives the lane; `offset` is what its carve(kBytes) or reserve(kBytes) has
  // returned.
  WindowLane(Window& window, std::size_t offset);

  [[nodiscard]] int rank() const { return window_.rank(); }
  [[nodiscard]] int size() const { return window_.size(); }

  // The next operation. Returns the number of its first tile.
  std::uint64_t begin();
  // It uses so many tiles (more): said before any of them is used, and before it ends.
  void use(std::uint64_t tiles) { next_tile_ += tiles; }
  // Whether this rank may write its mail and staging.
  [[nodiscard]] bool may_enter();
  // `bytes` of the staging hold this rank's contribution.
  void enter(const Places& places);
  [[nodiscard]] bool entered(int peer);
  [[nodiscard]] bool all_entered();
  [[nodiscard]] Places places(int peer) const;  // once it has entered
  // A part of a tensor at a place that `peer` has told.
  [[nodiscard]] const std::byte* memory(int peer, std::size_t place, std::size_t bytes) const;
  // All words to the end of the operation's tiles.
  void finish();

  // Where a contribution of that many bytes lies.
  [[nodiscard]] std::byte* staging(std::size_t bytes);
  [[nodiscard]] const std::byte* staging(int peer, std::size_t bytes) const;
  [[nodiscard]] std::byte* tile(std::uint64_t number);
  [[nodiscard]] const std::byte* tile(int peer, std::uint64_t number) const;
  [[nodiscard]] std::byte* result(std::uint64_t number);
  [[nodiscard]] const std::byte* result(int peer, std::uint64_t number) const;

  void publish(Word word, std::uint64_t value);  // never goes back
  [[nodiscard]] bool reached(Word word, int peer, std::uint64_t value);
  [[nodiscard]] bool all_reached(Word word, std::uint64_t value);  // this rank too
  // Whether the place of tile `number` in the ring is free, as far as this word tells.
  [[nodiscard]] bool free(Word word, std::uint64_t number) {
    return number < kTiles || all_reached(word, number + 1 - kTiles);
  }
  // Wakes the others if something has been published since the last time.
  void ring();

  // No operation of this rank runs on the lane any more. It may change its tensors while they are
  // read where they lie: whoever has read such memory must find nobody_gave_up() afterwards.
  void give_up();
  [[nodiscard]] bool given_up() const { return given_up_; }
  [[nodiscard]] bool nobody_gave_up();

  // The only places where bytes are copied into shared memory and out of it; counted.
  void pack(const TensorGroup& group, Range range, std::byte* to);
  void unpack(const TensorGroup& group, Range range, const std::byte* from);
  void pack(const std::byte* from, std::size_t bytes, std::byte* to);
  void unpack(const std::byte* from, std::size_t bytes, std::byte* to);
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  static constexpr std::size_t kWords = 3;
  static constexpr std::size_t kInlineBytes = 40;
  struct Mail;

  [[nodiscard]] std::size_t mail_offset(std::uint64_t operation) const;
  [[nodiscard]] std::size_t word_offset(std::size_t word) const;
  [[nodiscard]] std::size_t staging_offset(std::size_t bytes) const;
  [[nodiscard]] std::size_t tile_offset(std::uint64_t number) const;
  [[nodiscard]] std::size_t result_offset(std::uint64_t number) const;
  [[nodiscard]] bool peer_entered(int peer, std::uint64_t operations);

  Window& window_;
  std::size_t offset_;
  std::uint64_t operation_ = 0;  // the current one's number plus one
  std::uint64_t next_tile_ = 0;
  std::array<std::uint64_t, kWords> own_{};
  // What has been seen of the others, so that their lines are left alone while that is enough.
  std::vector<std::array<std::uint64_t, kWords>> seen_;
  std::vector<std::uint64_t> entered_;
  bool published_ = false;
  bool given_up_ = false;
  Counters counters_;
};

}  // namespace kolo::internal
