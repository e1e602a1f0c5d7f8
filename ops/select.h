// Which algorithm serves an all-reduce: a pure choice that every rank makes alike.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace kolo::internal {

enum class Algorithm { kOneshot, kDirect, kRing };

// The option KOLO_ALGORITHM (rank 0's value counts): "auto", "oneshot", "direct" or "ring".
enum class AlgorithmChoice { kAuto, kOneshot, kDirect, kRing };

// Nothing for another text.
[[nodiscard]] std::optional<AlgorithmChoice> parse_algorithm(std::string_view text);
[[nodiscard]] std::string_view algorithm_name(Algorithm algorithm);

// For an all-reduce of `total_bytes` (of the whole fused group) over `size` ranks. Oneshot and
// direct give the same bits, so the group's total may decide between them; the ring gives its own,
// so it is taken only when it was asked for, and then for every size.
[[nodiscard]] Algorithm select_allreduce(AlgorithmChoice choice, std::size_t total_bytes, int size);
// For a reduce-scatter or an all-gather: direct or ring. Whatever the sizes, direct has one step,
// and for a reduce-scatter the bits of an all-reduce that may be either.
[[nodiscard]] Algorithm select_by_rank(AlgorithmChoice choice);

}  // namespace kolo::internal
