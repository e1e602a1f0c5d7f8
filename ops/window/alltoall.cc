#include "ops/window/alltoall.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kolo::internal {
namespace {

// Of a place for each of `ranks` in so many bytes.
std::size_t place_bytes(std::size_t bytes, int ranks) {
  return bytes / static_cast<std::size_t>(ranks) / kCacheLineBytes * kCacheLineBytes;
}

std::size_t staging_place(int ranks) { return place_bytes(WindowLane::kOneshotBytes, ranks); }
std::size_t tile_place(int ranks) { return place_bytes(WindowLane::kTileBytes, ranks); }

}  // namespace

bool WindowAlltoall::is_little(std::size_t largest_bytes, int ranks) {
  return largest_bytes <= staging_place(ranks);
}

void WindowAlltoall::start(WindowLane& lane, const void* input, void* output,
                           std::span<const Block> to, std::span<const Block> from,
                           std::optional<std::size_t> arena_place) {
  KOLO_CHECK(to.size() == static_cast<std::size_t>(lane.size()));
  const auto own = static_cast<std::size_t>(lane.rank());
  to_.assign(to.begin(), to.end());
  begins_.resize(to.size());
  KOLO_CHECK(tile_place(lane.size()) > 0 &&
             to.size() * sizeof(begins_[0]) <= WindowLane::kOneshotBytes);
  input_ = static_cast<const std::byte*>(input);
  begin_pull(lane, {.from = from,
                    .output = static_cast<std::byte*>(output),
                    .own_input = input_ + to[own].offset,
                    .arena_place = arena_place,
                    .part_bytes = tile_place(lane.size()),
                    .part_offset = own * tile_place(lane.size())});
  largest_.resize(to.size());
  largest_[own] = 0;
  for (std::size_t r = 0; r < to.size(); ++r) {
    begins_[r] = to[r].offset;
    if (r != own) largest_[own] = std::max<std::uint64_t>(largest_[own], to[r].bytes);
  }
  KOLO_CHECK(to[own].bytes == from[own].bytes);
  KOLO_CHECK(!arena_place || !is_little(rank()));
  met_ = 0;
}

WindowLane::Places WindowAlltoall::enter() {
  const std::uint64_t& largest = largest_[static_cast<std::size_t>(rank())];
  std::memcpy(lane().staging(sizeof largest), &largest, sizeof largest);
  std::byte* staging = lane().staging(WindowLane::kOneshotBytes);
  if (is_little(rank())) {
    pack_round(staging_place(size()), 0, staging);
  } else if (arena_place()) {
    std::memcpy(staging, begins_.data(), begins_.size() * sizeof(begins_[0]));
  }
  return {.input = arena_place(), .output = {}};
}

// Whether all have entered; learns how much they show.
bool WindowAlltoall::meet() {
  if (met_ == size()) return true;
  for (; met_ < size() && lane().entered(met_); ++met_) {
    std::uint64_t& largest = largest_[static_cast<std::size_t>(met_)];
    std::memcpy(&largest, lane().staging(met_, sizeof largest), sizeof largest);
    KOLO_CHECK(met_ == rank() || from(met_).bytes <= largest);
  }
  if (met_ < size()) return false;
  const auto tiles_of = [&](int source) {
    return is_little(source)
               ? 0
               : segment_count(largest_[static_cast<std::size_t>(source)], tile_place(size()));
  };
  std::size_t most = 0;
  for (int source = 0; source < size(); ++source) most = std::max(most, tiles_of(source));
  set_tiles(most, arena_place() ? 0 : tiles_of(rank()));
  return true;
}

bool WindowAlltoall::step() { return meet() ? WindowPull::step() : keep_own(); }

const std::byte* WindowAlltoall::staged(int source) {
  if (!is_little(source)) return nullptr;
  return lane().staging(source, WindowLane::kOneshotBytes) +
         static_cast<std::size_t>(rank()) * staging_place(size());
}

std::size_t WindowAlltoall::input_offset(int source) {
  std::uint64_t begin = 0;
  std::memcpy(&begin,
              lane().staging(source, WindowLane::kOneshotBytes) +
                  static_cast<std::size_t>(rank()) * sizeof begin,
              sizeof begin);
  return begin;
}

void WindowAlltoall::pack(std::uint64_t tile) {
  pack_round(tile_place(size()), tile, lane().tile(number(tile)));
}

// Of every block to another rank the part that fills its place, in the round that it is due.
void WindowAlltoall::pack_round(std::size_t place_bytes, std::uint64_t round, std::byte* places) {
  for (int peer = 0; peer < size(); ++peer, places += place_bytes) {
    if (peer == rank() || place_bytes == 0) continue;
    const Block& block = to_[static_cast<std::size_t>(peer)];
    const Range part = segment_of({0, block.bytes}, place_bytes, static_cast<std::size_t>(round));
    lane().pack(input_ + block.offset + part.begin, part.count, places);
  }
}

}  // namespace kolo::internal
