#include "transport/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace kolo::internal {

std::uint32_t crc32c(std::uint32_t sum, const void* data, std::size_t bytes) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 30;             // the library counts in int
  auto* at = static_cast<unsigned char*>(const_cast<void*>(data));  // it only reads
  std::uint32_t inverted = ~sum;
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, kAtOnce);
    inverted = crc32_iscsi(at, static_cast<int>(part), inverted);
    at += part;
    bytes -= part;
  }
  return ~inverted;
}

}  // namespace kolo::internal
