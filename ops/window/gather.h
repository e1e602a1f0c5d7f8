// All-gather, ragged or not, and broadcast over a window. See pull.h; little is up to
// kOneshotBytes.
#pragma once

#include <optional>
#include <span>

#include "ops/window/pull.h"

namespace kolo::internal {

class WindowGather final : public WindowPull {
 public:
  // What rank s has, from[s].bytes, goes to output + from[s].offset of all; in a broadcast only one
  // has something. Input counts where there is something to show, and may be in its place of the
  // output. `arena_place`: of the input.
  void start(WindowLane& lane, const void* input, void* output, std::span<const Block> from,
             std::optional<std::size_t> arena_place);

 private:
  WindowLane::Places enter() override;
  const std::byte* staged(int source) override;
  std::size_t input_offset(int) override { return 0; }
  void pack(std::uint64_t tile) override;

  const std::byte* input_ = nullptr;
};

}  // namespace kolo::internal
