#include "ops/nonfinite.h"

#include <cstring>

namespace kolo::internal {
namespace {

// Neither has another exponent than all ones.
template <typename Bits, Bits kExponent>
std::uint64_t count_in(const std::byte* memory, std::size_t elements) {
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    Bits bits;
    std::memcpy(&bits, memory + i * sizeof(Bits), sizeof(Bits));
    found += static_cast<Bits>(bits & kExponent) == kExponent ? 1u : 0u;
  }
  return found;
}

}  // namespace

std::uint64_t count_nonfinite(DataType dtype, const void* memory, std::size_t elements) {
  const auto* bytes = static_cast<const std::byte*>(memory);
  switch (dtype) {
    case DataType::kFloat16: return count_in<std::uint16_t, 0x7c00>(bytes, elements);
    case DataType::kBfloat16: return count_in<std::uint16_t, 0x7f80>(bytes, elements);
    case DataType::kFloat32: return count_in<std::uint32_t, 0x7f800000>(bytes, elements);
    case DataType::kFloat64: return count_in<std::uint64_t, 0x7ff0000000000000>(bytes, elements);
    default: return 0;
  }
}

}  // namespace kolo::internal
