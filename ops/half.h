// Conversions between f32 and the 16-bit floating types, bit by bit and free of branches, so that
// compilers can vectorise them. Widening is exact; narrowing rounds to nearest, ties to even;
// NaNs stay NaN (quiet); subnormals are exact, given default MXCSR (see mxcsr_guard.h).
//
// Always inlined: these are compiled under several instruction sets, and the linker must never
// merge one set's copy into another's code.
#pragma once

#include <cstdint>

#ifdef __CUDACC__  // device code uses these as well
#define KOLO_ANYWHERE [[gnu::always_inline]] __host__ __device__
#else
#define KOLO_ANYWHERE [[gnu::always_inline]]
#endif

namespace kolo::internal {

KOLO_ANYWHERE inline float float_of_bits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
KOLO_ANYWHERE inline std::uint32_t bits_of_float(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}

KOLO_ANYWHERE inline float widen_bf16(std::uint16_t half) {
  return float_of_bits(static_cast<std::uint32_t>(half) << 16);
}

KOLO_ANYWHERE inline std::uint16_t narrow_bf16(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<std::uint16_t>(is_nan ? quiet : rounded);
}

KOLO_ANYWHERE inline float widen_f16(std::uint16_t half) {
  constexpr std::uint32_t kRebias = (127u - 15u) << 23;
  const std::uint32_t sign = (static_cast<std::uint32_t>(half) & 0x8000u) << 16;
  const std::uint32_t shifted = (static_cast<std::uint32_t>(half) & 0x7fffu) << 13;
  const std::uint32_t exponent = shifted & 0x0f800000u;
  const std::uint32_t normal = shifted + kRebias;
  // Inf and NaN: the exponent becomes all ones; NaNs turn quiet.
  const std::uint32_t special = (normal + kRebias) | (shifted > 0x0f800000u ? 0x00400000u : 0u);
  // Subnormal: mantissa units of 2^-24, made by a subtraction that is exact.
  const std::uint32_t subnormal =
      bits_of_float(float_of_bits(normal + (1u << 23)) - float_of_bits(113u << 23));
  const std::uint32_t magnitude =
      exponent == 0 ? subnormal : (exponent == 0x0f800000u ? special : normal);
  return float_of_bits(magnitude | sign);
}

KOLO_ANYWHERE inline std::uint16_t narrow_f16(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  // From 2^16 up: infinity, or a quiet NaN with the payload's top.
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const std::uint32_t huge = magnitude > 0x7f800000u ? nan : 0x7c00u;
  // Below 2^-14: adding 0.5 puts the last f16 bit at the last f32 bit; the addition rounds.
  const std::uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0.5f) - (126u << 23);
  const std::uint32_t normal =
      (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t result =
      magnitude >= 0x47800000u ? huge : (magnitude < 0x38800000u ? subnormal : normal);
  return static_cast<std::uint16_t>(result | sign);
}

}  // namespace kolo::internal
