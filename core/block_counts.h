// What of a tensor goes from whom to whom, in elements: this rank's part in an ordered operation.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/extents.h"
#include "core/request_state.h"

namespace kolo::internal {

// `index`: of the tensor in the request's unit, as for all that follows.
[[nodiscard]] Extents<std::size_t> elements_of(const RequestState& request, std::size_t index);

// The numbers that the ranks gave each for itself, or share; empty: the tensor's count for each. Of
// an all-to-all [size * size], with a row for each sender.
[[nodiscard]] std::span<const std::uint64_t> given_counts(const RequestState& request,
                                                          std::size_t index);

// [size of the set] blocks by rank, times `unit`.
void put_blocks(const RequestState& request, std::size_t index, std::size_t unit,
                std::vector<std::size_t>& blocks);
// Of an all-to-all: what this rank sends to each, and gets of each, times `unit`.
void put_exchange(const RequestState& request, std::size_t index, std::size_t unit,
                  std::vector<std::size_t>& sent, std::vector<std::size_t>& received);

}  // namespace kolo::internal
