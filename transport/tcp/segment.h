// What travels on a data connection: messages cut into segments, each behind a header.
//
//   header (kMessage) | up to 1 MiB of payload      a segment; the first of a message has offset 0
//   header (kAbandoned)                             what has begun is not completed: it was dropped
//   header (kEnd)                                   the clean end
//
// Cut, so that a message can be given up without sending the rest of it, and so that damage is
// found soon: with the option `checksum`, a header has the CRC32C of its payload and of itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/checksum.h"

namespace kolo::internal {

enum class SegmentKind : std::uint32_t { kMessage = 1, kAbandoned = 2, kEnd = 3 };

struct SegmentHeader {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;   // of the whole message
  std::uint64_t offset = 0;  // of this segment in it
  std::uint32_t scope = 0;
  SegmentKind kind = SegmentKind::kMessage;
  std::uint32_t payload_sum = 0;  // the sums are 0 without the option
  std::uint32_t header_sum = 0;   // of all fields above
};
static_assert(sizeof(SegmentHeader) == 40);

inline constexpr std::size_t kSegmentBytes = std::size_t{1} << 20;

inline std::size_t payload_bytes(const SegmentHeader& header) {
  return std::min<std::uint64_t>(kSegmentBytes, header.bytes - header.offset);
}

inline std::uint32_t sum_of(const SegmentHeader& header) {
  return crc32c(0, &header, offsetof(SegmentHeader, header_sum));
}

}  // namespace kolo::internal
