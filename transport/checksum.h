// CRC32C over bytes, by the processor's own instructions where it has them. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo::internal {

// Goes on from the sum of what came before; begins with 0.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t sum, const void* data, std::size_t bytes);

}  // namespace kolo::internal
