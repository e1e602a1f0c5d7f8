// What travels on a data connection: messages cut into segments, each behind a header.
//
//   header (kMessage) | up to 1 MiB of payload      a segment; the first of a message has offset 0
//   header (kAbandoned)                             what has begun is not completed: it was dropped
//   header (kEnd)                                   the clean end
//
// Cut, so that a message can be given up without sending the rest of it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kolo::internal {

enum class SegmentKind : std::uint32_t { kMessage = 1, kAbandoned = 2, kEnd = 3 };

struct SegmentHeader {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;   // of the whole message
  std::uint64_t offset = 0;  // of this segment in it
  std::uint32_t scope = 0;
  SegmentKind kind = SegmentKind::kMessage;
};
static_assert(sizeof(SegmentHeader) == 32);

inline constexpr std::size_t kSegmentBytes = std::size_t{1} << 20;

inline std::size_t payload_bytes(const SegmentHeader& header) {
  return std::min<std::uint64_t>(kSegmentBytes, header.bytes - header.offset);
}

}  // namespace kolo::internal
