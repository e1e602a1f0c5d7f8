// The data of simulated operations: what a rank gives, and what a result must be, bit by bit.
// Pure functions. The reference is written plainly here; it shares no code with ops/.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coordinator/topology.h"
#include "coordinator/unit.h"

namespace kolo::internal {

// Elements are 32-bit words: the bits of an f32 or an i32.
using Words = std::vector<std::uint32_t>;

// Elements that the rank at `place` of a set of `size` gives.
[[nodiscard]] std::size_t input_count(const TensorSpec& spec, std::size_t place, std::size_t size);
// Where its block for, or from, the rank at `place` lies.
struct TensorBlock {
  std::size_t first = 0;
  std::size_t count = 0;

  [[nodiscard]] Words of(const Words& words) const {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }
};
[[nodiscard]] TensorBlock block_of(const TensorSpec& spec, std::size_t place);

// The `count` elements that `rank` gives to tensor `index` of operation `op`; small whole numbers
// unless `inexact`.
[[nodiscard]] Words input_of(int op, int rank, std::size_t index, const TensorSpec& spec,
                             std::size_t count, bool inexact);

// What `rank` has to give to a unit of one small tensor, as bytes; nothing for all other units.
[[nodiscard]] std::optional<std::string> payload_of(int op, int rank, const Unit& unit,
                                                    bool inexact);

// Adasum counts as a sum here. The contributions of one tensor, by place in `ranks` (ascending);
// empty for absent ranks.
[[nodiscard]] Words reference_allreduce(const TensorSpec& spec, const std::vector<Words>& inputs,
                                        std::span<const int> hosts);

// One fused operation over the concatenated tensors by the kernels of ops/: `packed` by place in
// the process set, empty for absent ranks. Scales are the packer's business.
[[nodiscard]] Words fused_allreduce(const TensorSpec& spec, const std::vector<Words>& packed,
                                    std::span<const int> hosts);

// One tensor from every rank's payload, by place in the process set, by the code of ops/.
[[nodiscard]] Words gathered_result(const TensorSpec& spec,
                                    const std::vector<std::string>& payloads, std::size_t root,
                                    std::span<const int> hosts);

void scale(std::span<std::uint32_t> words, double by);  // f32 words; `by` is a power of two

}  // namespace kolo::internal
