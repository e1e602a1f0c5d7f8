// What the device does for a batch of tensors, as plain C++: pack (tensors into one buffer) and
// unpack (back), with a change of type and a scale on the way, unpack with a count of the values
// that are not finite; and that count alone, of tensors where they lie. kernels.cu makes kernels of
// these bodies; tests and the fake device run them on a CPU.
//
//   1. The batch is cut into tiles of kTileElements; a tile lies within one tensor.
//   2. A block takes every `blocks`-th tile and finds its tensor by bisection.
//   3. Its threads move the tile in pieces of 16 bytes, where both sides' alignment allows it
//      (after a few single elements), else element by element, else byte by byte.
//   4. What a thread has found in a tensor goes to that tensor's counter when the block's next tile
//      is another's, and at the end: nothing is written of tensors that are finite.
// Cost: one read and one write of the memory, of a count one read; bound by its bandwidth.
//
// Values are computed in f32 (f64 in f64) and rounded once, to nearest even, as on the CPU roads;
// what is neither scaled nor changed keeps its bits, counted or not.
// Threads: a body is one device thread's share. Nothing may overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "ops/cuda/device_values.cuh"

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

// The one argument of all kernels, by value.
struct BatchArguments {
  std::byte* buffer = nullptr;
  unsigned long long* counters = nullptr;  // by tensor, of the kernels that count
  double scale = 1.0;                      // of floating types
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

// What happens to one element. `found` counts results that are not finite.
template <typename From, typename To>
struct Scaled {
  using In = typename From::Bits;
  using Out = typename To::Bits;
  typename To::Value scale;
  std::uint32_t found = 0;

  KOLO_DEVICE Out operator()(In in) {
    const Out out = To::write(From::read(in) * scale);
    found += is_nonfinite<To>(out) ? 1u : 0u;
    return out;
  }
};
template <typename Type>
struct Counted {
  using In = typename Type::Bits;
  using Out = In;
  std::uint32_t found = 0;

  KOLO_DEVICE Out operator()(In in) {
    found += is_nonfinite<Type>(in) ? 1u : 0u;
    return in;
  }
};
template <typename Bits>
struct Copied {
  using In = Bits;
  using Out = Bits;
  std::uint32_t found = 0;

  KOLO_DEVICE Out operator()(In in) { return in; }
};

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

// The number of the tensor that holds this tile.
KOLO_DEVICE unsigned tensor_of(const BatchArguments& batch, std::uint64_t tile) {
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
  return low;
}

// Where counts go: add(tensor, found), by its number in the batch, is called by all threads of a
// block at once.
struct NoCounters {
  static constexpr bool kCounts = false;
  KOLO_DEVICE void add(unsigned /*tensor*/, std::uint32_t /*found*/) {}
};

// What this thread has found in the tensor at hand, of which it sees less than 2^32 elements.
template <typename Counters>
class Tally {
 public:
  KOLO_DEVICE explicit Tally(Counters& counters) : counters_(counters) {}
  // The next tile is of this tensor.
  KOLO_DEVICE void turn_to(unsigned tensor, std::uint32_t& found) {
    if constexpr (Counters::kCounts) {
      if (tensor == tensor_) return;
      if (tensor_ != kNone) flush(found);
      tensor_ = tensor;
    }
  }
  KOLO_DEVICE void flush(std::uint32_t& found) {
    if constexpr (Counters::kCounts) {
      if (tensor_ != kNone) counters_.add(tensor_, found);
      found = 0;
    }
  }

 private:
  static constexpr unsigned kNone = kBatchTensors;
  Counters& counters_;
  unsigned tensor_ = kNone;
};

template <bool kIsPack, typename Change, typename Counters>
KOLO_DEVICE void move_batch(const BatchArguments& batch, DevicePlace place, Change change,
                            Counters& counters) {
  constexpr std::uint64_t kTensorBytes =
      kIsPack ? sizeof(typename Change::In) : sizeof(typename Change::Out);
  constexpr std::uint64_t kBufferBytes =
      kIsPack ? sizeof(typename Change::Out) : sizeof(typename Change::In);
  Tally<Counters> tally(counters);
  for (std::uint64_t tile = place.block; tile < batch.tiles; tile += place.blocks) {
    const unsigned index = tensor_of(batch, tile);
    const BatchTensor& tensor = batch.tensors[index];
    tally.turn_to(index, change.found);
    const std::uint64_t begin = (tile - tensor.first_tile) * kTileElements;
    const std::uint64_t left = tensor.count - begin;
    std::byte* memory = static_cast<std::byte*>(tensor.memory) + begin * kTensorBytes;
    std::byte* buffer = batch.buffer + tensor.offset + begin * kBufferBytes;
    move_tile(kIsPack ? memory : buffer, kIsPack ? buffer : memory,
              left < kTileElements ? left : kTileElements, change, place);
  }
  tally.flush(change.found);
}

template <bool kIsPack, typename Tensor, typename Buffer, typename Counters>
KOLO_DEVICE void move_scaled(const BatchArguments& batch, DevicePlace place, Counters& counters) {
  if constexpr (kIsPack) {
    using Change = Scaled<Tensor, Buffer>;
    move_batch<true>(batch, place, Change{static_cast<typename Buffer::Value>(batch.scale)},
                     counters);
  } else {
    using Change = Scaled<Buffer, Tensor>;
    move_batch<false>(batch, place, Change{static_cast<typename Tensor::Value>(batch.scale)},
                      counters);
  }
}

template <bool kIsPack, typename Tensor, typename Counters>
KOLO_DEVICE void move_to_type(const BatchArguments& batch, DevicePlace place, Counters& counters) {
  switch (static_cast<DataType>(batch.buffer_type)) {
    case DataType::kFloat16: return move_scaled<kIsPack, Tensor, F16>(batch, place, counters);
    case DataType::kBfloat16: return move_scaled<kIsPack, Tensor, Bf16>(batch, place, counters);
    default: return move_scaled<kIsPack, Tensor, F32>(batch, place, counters);
  }
}

// Types of which nothing is computed, by their size.
template <bool kIsPack>
KOLO_DEVICE void copy_batch(const BatchArguments& batch, DevicePlace place) {
  NoCounters none;
  switch (static_cast<DataType>(batch.tensor_type)) {
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return move_batch<kIsPack>(batch, place, Copied<std::uint16_t>{}, none);
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
      return move_batch<kIsPack>(batch, place, Copied<std::uint32_t>{}, none);
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return move_batch<kIsPack>(batch, place, Copied<std::uint64_t>{}, none);
    default: return move_batch<kIsPack>(batch, place, Copied<std::uint8_t>{}, none);
  }
}

// Floating types as they are, and counted.
template <typename Counters>
KOLO_DEVICE void copy_counted(const BatchArguments& batch, DevicePlace place, Counters& counters) {
  switch (static_cast<DataType>(batch.tensor_type)) {
    case DataType::kFloat16: return move_batch<false>(batch, place, Counted<F16>{}, counters);
    case DataType::kBfloat16: return move_batch<false>(batch, place, Counted<Bf16>{}, counters);
    case DataType::kFloat32: return move_batch<false>(batch, place, Counted<F32>{}, counters);
    case DataType::kFloat64: return move_batch<false>(batch, place, Counted<F64>{}, counters);
    default: return copy_batch<false>(batch, place);
  }
}

template <bool kIsPack, typename Counters>
KOLO_DEVICE void move_any(const BatchArguments& batch, DevicePlace place, Counters& counters) {
  if (batch.tensor_type == batch.buffer_type && batch.scale == 1.0) {
    if constexpr (Counters::kCounts) {
      return copy_counted(batch, place, counters);
    } else {
      return copy_batch<kIsPack>(batch, place);
    }
  }
  switch (static_cast<DataType>(batch.tensor_type)) {
    case DataType::kFloat16: return move_to_type<kIsPack, F16>(batch, place, counters);
    case DataType::kBfloat16: return move_to_type<kIsPack, Bf16>(batch, place, counters);
    case DataType::kFloat32: return move_to_type<kIsPack, F32>(batch, place, counters);
    case DataType::kFloat64: return move_scaled<kIsPack, F64, F64>(batch, place, counters);
    default: return copy_batch<kIsPack>(batch, place);
  }
}

template <typename Type>
KOLO_DEVICE void count_tile(const std::byte* from, std::uint64_t count, std::uint32_t& found,
                            DevicePlace place) {
  using Bits = typename Type::Bits;
  constexpr unsigned kElements = 16 / sizeof(Bits);
  if (misalignment(from, sizeof(Bits)) != 0) {
    KOLO_KEEP_SHORT
    for (std::uint64_t i = place.thread; i < count; i += place.threads) {
      found += is_nonfinite<Type>(load_bytes<Bits>(from + i * sizeof(Bits))) ? 1u : 0u;
    }
    return;
  }
  const auto single = [&](std::uint64_t begin, std::uint64_t end) {
    KOLO_KEEP_SHORT
    for (std::uint64_t i = begin + place.thread; i < end; i += place.threads) {
      found += is_nonfinite<Type>(load<Bits>(from + i * sizeof(Bits))) ? 1u : 0u;
    }
  };
  const std::uint64_t head = elements_before_pieces<Bits, Bits>(from, from, count);
  const std::uint64_t pieces = (count - head) / kElements;
  single(0, head);
  for (std::uint64_t i = place.thread; i < pieces; i += place.threads) {
    union {
      Piece piece;
      Bits elements[kElements];
    };
    piece = load<Piece>(from + head * sizeof(Bits) + 16 * i);
    for (unsigned k = 0; k < kElements; ++k) found += is_nonfinite<Type>(elements[k]) ? 1u : 0u;
  }
  single(head + pieces * kElements, count);
}

template <typename Type, typename Counters>
KOLO_DEVICE void count_batch(const BatchArguments& batch, DevicePlace place, Counters& counters) {
  std::uint32_t found = 0;
  Tally<Counters> tally(counters);
  for (std::uint64_t tile = place.block; tile < batch.tiles; tile += place.blocks) {
    const unsigned index = tensor_of(batch, tile);
    const BatchTensor& tensor = batch.tensors[index];
    tally.turn_to(index, found);
    const std::uint64_t begin = (tile - tensor.first_tile) * kTileElements;
    const std::uint64_t left = tensor.count - begin;
    count_tile<Type>(
        static_cast<const std::byte*>(tensor.memory) + begin * sizeof(typename Type::Bits),
        left < kTileElements ? left : kTileElements, found, place);
  }
  tally.flush(found);
}

}  // namespace device

// One thread's share of packing: buffer[offset] = tensor * scale.
KOLO_DEVICE void pack_body(const BatchArguments& batch, DevicePlace place) {
  device::NoCounters none;
  device::move_any<true>(batch, place, none);
}

// One thread's share of unpacking: tensor = buffer[offset] * scale.
KOLO_DEVICE void unpack_body(const BatchArguments& batch, DevicePlace place) {
  device::NoCounters none;
  device::move_any<false>(batch, place, none);
}

// The same, and how many of a tensor's results are not finite goes to `counters`, which are as
// device::NoCounters is.
template <typename Counters>
KOLO_DEVICE void unpack_counted_body(const BatchArguments& batch, DevicePlace place,
                                     Counters& counters) {
  device::move_any<false>(batch, place, counters);
}

// One thread's share of counting what is not finite in the batch's tensors, of a floating type.
template <typename Counters>
KOLO_DEVICE void count_body(const BatchArguments& batch, DevicePlace place, Counters& counters) {
  using namespace device;
  switch (static_cast<DataType>(batch.tensor_type)) {
    case DataType::kFloat16: return count_batch<F16>(batch, place, counters);
    case DataType::kBfloat16: return count_batch<Bf16>(batch, place, counters);
    case DataType::kFloat32: return count_batch<F32>(batch, place, counters);
    case DataType::kFloat64: return count_batch<F64>(batch, place, counters);
    default: return;
  }
}

}  // namespace kolo::internal::cuda
