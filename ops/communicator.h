// Communicator: what a collective needs to know of its ranks. A value; copied by start().
//
// Everything it points to is the caller's and outlives the operation: the channels of one stream
// (used by that operation alone while it runs) and the canonical order of these ranks.
#pragma once

#include <cstdint>
#include <span>

#include "ops/reduction_order.h"
#include "transport/channel.h"

namespace kolo::internal {

struct Communicator {
  int rank = 0;
  int size = 1;
  std::span<Channel* const> channels = {};  // [size]; this rank's own entry is null
  const ReductionOrder* order = nullptr;    // of `size` ranks; needed by all-reduces only
  std::uint32_t sequence = 0;  // of the operation, the same on all ranks; part of every tag
  std::uint32_t scope = 0;     // of its messages: what is given up together (Channel::drop)
};

// The tag of a message: which operation, which half of it, which segment. Phases are below 16 and
// segments below 2^28, so a phase may move 2^42 bytes in segments of 16 KiB.
constexpr std::uint64_t message_tag(std::uint32_t sequence, std::uint32_t phase,
                                    std::uint64_t segment) {
  return (std::uint64_t{sequence} << 32) | (std::uint64_t{phase & 0xf} << 28) |
         (segment & 0xfffffff);
}

}  // namespace kolo::internal
