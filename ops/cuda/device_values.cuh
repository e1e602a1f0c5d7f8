// What a device thread reads, computes and writes: floating types by their bits, and memory at any
// alignment. For kernels.cuh; plain C++ elsewhere than in nvcc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/half.h"

#ifdef __CUDACC__
#define KOLO_DEVICE __device__ __forceinline__
#define KOLO_KEEP_SHORT _Pragma("unroll 1")  // a loop of few turns, for less code
#else
#define KOLO_DEVICE inline
#define KOLO_KEEP_SHORT
#endif

namespace kolo::internal::cuda::device {

KOLO_DEVICE float f32_of_f16(std::uint16_t bits) {
#ifdef __CUDACC__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  return widen_f16(bits);
#endif
}

KOLO_DEVICE std::uint16_t f16_of_f32(float value) {
#ifdef __CUDACC__
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  return narrow_f16(value);
#endif
}

// Types that are computed with: how they are stored, read and written.
struct F16 {
  using Bits = std::uint16_t;
  using Value = float;
  static constexpr Bits kExponent = 0x7c00;
  KOLO_DEVICE static Value read(Bits bits) { return f32_of_f16(bits); }
  KOLO_DEVICE static Bits write(Value value) { return f16_of_f32(value); }
};
struct Bf16 {
  using Bits = std::uint16_t;
  using Value = float;
  static constexpr Bits kExponent = 0x7f80;
  KOLO_DEVICE static Value read(Bits bits) { return widen_bf16(bits); }
  KOLO_DEVICE static Bits write(Value value) { return narrow_bf16(value); }
};
struct F32 {
  using Bits = std::uint32_t;
  using Value = float;
  static constexpr Bits kExponent = 0x7f800000;
  KOLO_DEVICE static Value read(Bits bits) { return float_of_bits(bits); }
  KOLO_DEVICE static Bits write(Value value) { return bits_of_float(value); }
};
struct F64 {
  using Bits = std::uint64_t;
  using Value = double;
  static constexpr Bits kExponent = 0x7ff0000000000000;
  KOLO_DEVICE static Value read(Bits bits) {
    Value value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
  KOLO_DEVICE static Bits write(Value value) {
    Bits bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
  }
};

template <typename Type>
KOLO_DEVICE bool is_nonfinite(typename Type::Bits bits) {
  return (bits & Type::kExponent) == Type::kExponent;
}

// 16 bytes at a multiple of 16.
struct alignas(16) Piece {
  std::uint32_t words[4];
};

#ifndef __CUDACC__
// A device would fault.
inline void check_aligned(const std::byte* pointer, std::size_t unit) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % unit != 0) __builtin_trap();
}
#endif

template <typename T>
KOLO_DEVICE T load(const std::byte* from) {
#ifdef __CUDACC__
  return *reinterpret_cast<const T*>(from);
#else
  check_aligned(from, sizeof(T));
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
#endif
}
template <typename T>
KOLO_DEVICE void store(std::byte* to, T value) {
#ifdef __CUDACC__
  *reinterpret_cast<T*>(to) = value;
#else
  check_aligned(to, sizeof(T));
  std::memcpy(to, &value, sizeof value);
#endif
}
#ifdef __CUDACC__
template <>
KOLO_DEVICE Piece load<Piece>(const std::byte* from) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  return Piece{{v.x, v.y, v.z, v.w}};
}
template <>
KOLO_DEVICE void store<Piece>(std::byte* to, Piece piece) {
  *reinterpret_cast<uint4*>(to) =
      make_uint4(piece.words[0], piece.words[1], piece.words[2], piece.words[3]);
}
#endif

// For memory at any address.
template <typename T>
KOLO_DEVICE T load_bytes(const std::byte* from) {
  T value = 0;
  for (unsigned i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value | static_cast<T>(static_cast<T>(from[i]) << (8 * i)));
  }
  return value;
}
template <typename T>
KOLO_DEVICE void store_bytes(std::byte* to, T value) {
  for (unsigned i = 0; i < sizeof(T); ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

KOLO_DEVICE unsigned misalignment(const std::byte* pointer, unsigned unit) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(pointer) % unit);
}

}  // namespace kolo::internal::cuda::device
