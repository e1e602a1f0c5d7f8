// Counts the NaNs and infinities in a tensor: for loss scaling. A pure function over any part of
// it, so that whoever counts a long one does it in steps.
//
// Cost: one pass over the memory; bound by its bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace kolo::internal {

// `memory`: [count] elements at any alignment. 0 for types that have neither, and for fp8.
[[nodiscard]] std::uint64_t count_nonfinite(DataType dtype, const void* memory, std::size_t count);

}  // namespace kolo::internal
