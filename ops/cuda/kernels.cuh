// What the device does for a batch of tensors, as plain C++: pack (tensors into one buffer) and
// unpack (back), with a change of type and a scale on the way, and a count of the values that are
// not finite. kernels.cu makes kernels of these bodies; tests and the fake device run them on a
// CPU.
//
//   1. The batch is cut into tiles of kTileElements; a tile lies within one tensor.
//   2. A block takes every `blocks`-th tile and finds its tensor by bisection.
//   3. Its threads move the tile in pieces of 16 bytes, where both sides' alignment allows it
//      (after a few single elements), else element by element, else byte by byte.
// Cost: one read and one write of the memory; bound by its bandwidth.
//
// Values are computed in f32 (f64 in f64) and rounded once, to nearest even, as on the CPU roads.
// Threads: a body is one device thread's share. Nothing may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/types.h"
#include "ops/half.h"

#ifdef __CUDACC__
#define KOLO_DEVICE __device__ __forceinline__
#define KOLO_KEEP_SHORT _Pragma("unroll 1")  // a loop of few turns, for less code
#else
#define KOLO_DEVICE inline
#define KOLO_KEEP_SHORT
#endif

namespace kolo::internal::cuda {

inline constexpr std::uint64_t kTileElements = 4096;  // a multiple of any piece of 16 bytes
inline constexpr unsigned kBatchTensors = 120;        // of one launch
inline constexpr unsigned kThreads = 256;             // of a block

struct BatchTensor {
  void* memory = nullptr;
  std::uint64_t offset = 0;      // bytes from the buffer's beginning; a multiple of 16 is fastest
  std::uint64_t count = 0;       // elements
  std::uint64_t first_tile = 0;  // tiles of the tensors before this one
};

// The one argument of both kernels, by value.
struct BatchArguments {
  std::byte* buffer = nullptr;
  unsigned long long* nonfinite = nullptr;  // unpack adds to it; null: nobody wants to know
  double scale = 1.0;                       // of floating types
  std::uint64_t tiles = 0;
  std::uint32_t tensor_count = 0;
  std::int32_t tensor_type = 0;  // DataType
  std::int32_t buffer_type = 0;  // the same, or both of f16, bf16, f32
  std::int32_t reserved = 0;
  BatchTensor tensors[kBatchTensors];
};
static_assert(sizeof(BatchArguments) <= 4096, "all that a kernel may be given");

// Which thread this is.
struct DevicePlace {
  unsigned block = 0;
  unsigned blocks = 1;
  unsigned thread = 0;
  unsigned threads = 1;
};

namespace device {

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

// What happens to one element. `found` counts results that are not finite.
template <typename From, typename To>
struct Scaled {
  using In = typename From::Bits;
  using Out = typename To::Bits;
  typename To::Value scale;
  std::uint64_t found = 0;

  KOLO_DEVICE Out operator()(In in) {
    const Out out = To::write(From::read(in) * scale);
    found += (out & To::kExponent) == To::kExponent ? 1u : 0u;
    return out;
  }
};
template <typename Bits>
struct Copied {
  using In = Bits;
  using Out = Bits;
  std::uint64_t found = 0;

  KOLO_DEVICE Out operator()(In in) { return in; }
};

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

// Elements to move one by one until both sides are at a multiple of 16; `none` if they never are.
template <typename In, typename Out>
KOLO_DEVICE std::uint64_t elements_before_pieces(const std::byte* from, const std::byte* to,
                                                 std::uint64_t none) {
  KOLO_KEEP_SHORT
  for (unsigned i = 0; i < 16; ++i) {
    if (misalignment(from + i * sizeof(In), 16) == 0 &&
        misalignment(to + i * sizeof(Out), 16) == 0) {
      return i < none ? i : none;
    }
  }
  return none;
}

// As many elements as make up one piece on the narrower side; both sides at a multiple of 16.
template <typename Change>
KOLO_DEVICE void move_pieces(const std::byte* from, std::byte* to, Change& change) {
  using In = typename Change::In;
  using Out = typename Change::Out;
  constexpr unsigned kElements = 16 / (sizeof(In) < sizeof(Out) ? sizeof(In) : sizeof(Out));
  union Ins {
    Piece pieces[kElements * sizeof(In) / 16];
    In elements[kElements];
  };
  union Outs {
    Piece pieces[kElements * sizeof(Out) / 16];
    Out elements[kElements];
  };
  Ins in;
  Outs out;
  for (unsigned i = 0; i < kElements * sizeof(In) / 16; ++i)
    in.pieces[i] = load<Piece>(from + 16 * i);
  for (unsigned i = 0; i < kElements; ++i) out.elements[i] = change(in.elements[i]);
  for (unsigned i = 0; i < kElements * sizeof(Out) / 16; ++i) store(to + 16 * i, out.pieces[i]);
}

template <typename Change>
KOLO_DEVICE void move_single(const std::byte* from, std::byte* to, std::uint64_t begin,
                             std::uint64_t end, Change& change, DevicePlace place) {
  using In = typename Change::In;
  using Out = typename Change::Out;
  KOLO_KEEP_SHORT
  for (std::uint64_t i = begin + place.thread; i < end; i += place.threads) {
    store(to + i * sizeof(Out), change(load<In>(from + i * sizeof(In))));
  }
}

template <typename Change>
KOLO_DEVICE void move_tile(const std::byte* from, std::byte* to, std::uint64_t count,
                           Change& change, DevicePlace place) {
  using In = typename Change::In;
  using Out = typename Change::Out;
  constexpr unsigned kElements = 16 / (sizeof(In) < sizeof(Out) ? sizeof(In) : sizeof(Out));
  if (misalignment(from, sizeof(In)) != 0 || misalignment(to, sizeof(Out)) != 0) {
    KOLO_KEEP_SHORT
    for (std::uint64_t i = place.thread; i < count; i += place.threads) {
      store_bytes(to + i * sizeof(Out), change(load_bytes<In>(from + i * sizeof(In))));
    }
    return;
  }
  const std::uint64_t head = elements_before_pieces<In, Out>(from, to, count);
  const std::uint64_t pieces = (count - head) / kElements;
  move_single(from, to, 0, head, change, place);
  for (std::uint64_t i = place.thread; i < pieces; i += place.threads) {
    const std::uint64_t at = head + i * kElements;
    move_pieces(from + at * sizeof(In), to + at * sizeof(Out), change);
  }
  move_single(from, to, head + pieces * kElements, count, change, place);
}

// The tensor that holds this tile.
KOLO_DEVICE const BatchTensor& tensor_of(const BatchArguments& batch, std::uint64_t tile) {
  unsigned low = 0;
  unsigned high = batch.tensor_count;
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    if (batch.tensors[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return batch.tensors[low];
}

template <bool kIsPack, typename Change>
KOLO_DEVICE std::uint64_t move_batch(const BatchArguments& batch, DevicePlace place,
                                     Change change) {
  constexpr std::uint64_t kTensorBytes =
      kIsPack ? sizeof(typename Change::In) : sizeof(typename Change::Out);
  constexpr std::uint64_t kBufferBytes =
      kIsPack ? sizeof(typename Change::Out) : sizeof(typename Change::In);
  for (std::uint64_t tile = place.block; tile < batch.tiles; tile += place.blocks) {
    const BatchTensor& tensor = tensor_of(batch, tile);
    const std::uint64_t begin = (tile - tensor.first_tile) * kTileElements;
    const std::uint64_t left = tensor.count - begin;
    std::byte* memory = static_cast<std::byte*>(tensor.memory) + begin * kTensorBytes;
    std::byte* buffer = batch.buffer + tensor.offset + begin * kBufferBytes;
    move_tile(kIsPack ? memory : buffer, kIsPack ? buffer : memory,
              left < kTileElements ? left : kTileElements, change, place);
  }
  return change.found;
}

template <bool kIsPack, typename Tensor, typename Buffer>
KOLO_DEVICE std::uint64_t move_scaled(const BatchArguments& batch, DevicePlace place) {
  if constexpr (kIsPack) {
    using Change = Scaled<Tensor, Buffer>;
    return move_batch<true>(batch, place, Change{static_cast<typename Buffer::Value>(batch.scale)});
  } else {
    using Change = Scaled<Buffer, Tensor>;
    return move_batch<false>(batch, place,
                             Change{static_cast<typename Tensor::Value>(batch.scale)});
  }
}

template <bool kIsPack, typename Tensor>
KOLO_DEVICE std::uint64_t move_to_type(const BatchArguments& batch, DevicePlace place) {
  switch (static_cast<DataType>(batch.buffer_type)) {
    case DataType::kFloat16: return move_scaled<kIsPack, Tensor, F16>(batch, place);
    case DataType::kBfloat16: return move_scaled<kIsPack, Tensor, Bf16>(batch, place);
    default: return move_scaled<kIsPack, Tensor, F32>(batch, place);
  }
}

// Types of which nothing is computed, by their size.
template <bool kIsPack>
KOLO_DEVICE std::uint64_t copy_batch(const BatchArguments& batch, DevicePlace place) {
  switch (static_cast<DataType>(batch.tensor_type)) {
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kFloat16:
    case DataType::kBfloat16: return move_batch<kIsPack>(batch, place, Copied<std::uint16_t>{});
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32: return move_batch<kIsPack>(batch, place, Copied<std::uint32_t>{});
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64: return move_batch<kIsPack>(batch, place, Copied<std::uint64_t>{});
    default: return move_batch<kIsPack>(batch, place, Copied<std::uint8_t>{});
  }
}

template <bool kIsPack>
KOLO_DEVICE std::uint64_t move_any(const BatchArguments& batch, DevicePlace place) {
  const bool is_same = batch.tensor_type == batch.buffer_type;
  if (is_same && batch.scale == 1.0 && batch.nonfinite == nullptr) {
    return copy_batch<kIsPack>(batch, place);
  }
  switch (static_cast<DataType>(batch.tensor_type)) {
    case DataType::kFloat16: return move_to_type<kIsPack, F16>(batch, place);
    case DataType::kBfloat16: return move_to_type<kIsPack, Bf16>(batch, place);
    case DataType::kFloat32: return move_to_type<kIsPack, F32>(batch, place);
    case DataType::kFloat64: return move_scaled<kIsPack, F64, F64>(batch, place);
    default: return copy_batch<kIsPack>(batch, place);
  }
}

}  // namespace device

// One thread's share of packing: buffer[offset] = tensor * scale.
KOLO_DEVICE void pack_body(const BatchArguments& batch, DevicePlace place) {
  static_cast<void>(device::move_any<true>(batch, place));
}

// One thread's share of unpacking: tensor = buffer[offset] * scale. Returns how many of its results
// are not finite, for the caller to add to *batch.nonfinite; 0 if that is null.
KOLO_DEVICE std::uint64_t unpack_body(const BatchArguments& batch, DevicePlace place) {
  const std::uint64_t found = device::move_any<false>(batch, place);
  return batch.nonfinite == nullptr ? 0 : found;
}

}  // namespace kolo::internal::cuda
