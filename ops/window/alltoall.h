// All-to-all over a window: every rank pulls what the others have for it. See pull.h.
//
// A rank knows how much it sends and receives, but not what goes on between others. So on entering
// each says how large its largest block is, and when all have entered they know how many tiles of
// the ring will be used. There, as in the staging, every rank has a place of 1/n of it, for what
// goes to that rank. A source that shows its arena says where the blocks begin.
//
// No deadlock: all enter without waiting for more than the operation before; then see pull.h.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/window/pull.h"

namespace kolo::internal {

class WindowAlltoall final : public WindowPull {
 public:
  // to[r]: what of the input goes to rank r; from[s]: where in the output it comes from rank s.
  // Input and output do not overlap. `arena_place`: of the input.
  void start(WindowLane& lane, const void* input, void* output, std::span<const Block> to,
             std::span<const Block> from, std::optional<std::size_t> arena_place);
  // Whether a rank whose largest block to another has so many bytes shows all in its staging.
  [[nodiscard]] static bool is_little(std::size_t largest_bytes, int ranks);

 private:
  WindowLane::Places enter() override;
  bool step() override;
  bool meet();
  const std::byte* staged(int source) override;
  std::size_t input_offset(int source) override;
  void pack(std::uint64_t tile) override;
  [[nodiscard]] bool is_little(int source) const {
    return is_little(largest_[static_cast<std::size_t>(source)], size());
  }
  void pack_round(std::size_t place_bytes, std::uint64_t round, std::byte* places);

  const std::byte* input_ = nullptr;
  std::vector<Block> to_;
  std::vector<std::uint64_t> begins_;   // of the blocks of the input
  std::vector<std::uint64_t> largest_;  // by rank; of those below met_, and this one
  int met_ = 0;
};

}  // namespace kolo::internal
