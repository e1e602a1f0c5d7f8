#include "ops/window/gather.h"

#include <algorithm>

namespace kolo::internal {
namespace {

bool is_little(std::size_t bytes) { return bytes <= WindowLane::kOneshotBytes; }

}  // namespace

void WindowGather::start(WindowLane& lane, const void* input, void* output,
                         std::span<const Block> from, std::optional<std::size_t> arena_place) {
  input_ = static_cast<const std::byte*>(input);
  begin_pull(lane, {.from = from,
                    .output = static_cast<std::byte*>(output),
                    .own_input = input_,
                    .arena_place = arena_place,
                    .part_bytes = WindowLane::kTileBytes,
                    .part_offset = 0});
  std::size_t most = 0;
  for (const Block& block : from) most = std::max(most, block.bytes);
  const auto tiles_of = [](std::size_t bytes) {
    return is_little(bytes) ? 0 : segment_count(bytes, WindowLane::kTileBytes);
  };
  const std::size_t own = from[static_cast<std::size_t>(rank())].bytes;
  set_tiles(tiles_of(most), arena_place ? 0 : tiles_of(own));
}

WindowLane::Places WindowGather::enter() {
  const std::size_t own = from(rank()).bytes;
  if (!is_little(own)) return {.input = arena_place(), .output = {}};
  lane().pack(input_, own, lane().staging(own));
  return {};
}

const std::byte* WindowGather::staged(int source) {
  const std::size_t bytes = from(source).bytes;
  return is_little(bytes) ? lane().staging(source, bytes) : nullptr;
}

void WindowGather::pack(std::uint64_t tile) {
  const Range part =
      segment_of({0, from(rank()).bytes}, WindowLane::kTileBytes, static_cast<std::size_t>(tile));
  lane().pack(input_ + part.begin, part.count, lane().tile(number(tile)));
}

}  // namespace kolo::internal
