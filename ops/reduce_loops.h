// The one generic reduction loop, compiled once per instruction set (reduce_portable.cc,
// reduce_avx2.cc), each of which defines a table of the kernels of all dtypes and ops.
//
// Everything is in an unnamed namespace or always inlined, and nothing from the standard library
// is called: a function compiled for a newer instruction set must never be the copy that the linker
// keeps for all. Loads and stores go through memcpy, so any alignment works.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#endif

#include "base/types.h"
#include "ops/half.h"
#include "ops/reduce_kernels.h"

#define KOLO_ALWAYS_INLINE [[gnu::always_inline]] inline

namespace kolo::internal {
namespace {

// clang-format off
template <DataType D> struct StorageOf;
template <> struct StorageOf<DataType::kInt8> { using type = std::int8_t; };
template <> struct StorageOf<DataType::kUint8> { using type = std::uint8_t; };
template <> struct StorageOf<DataType::kInt16> { using type = std::int16_t; };
template <> struct StorageOf<DataType::kUint16> { using type = std::uint16_t; };
template <> struct StorageOf<DataType::kInt32> { using type = std::int32_t; };
template <> struct StorageOf<DataType::kUint32> { using type = std::uint32_t; };
template <> struct StorageOf<DataType::kInt64> { using type = std::int64_t; };
template <> struct StorageOf<DataType::kUint64> { using type = std::uint64_t; };
template <> struct StorageOf<DataType::kFloat16> { using type = std::uint16_t; };
template <> struct StorageOf<DataType::kBfloat16> { using type = std::uint16_t; };
template <> struct StorageOf<DataType::kFloat32> { using type = float; };
template <> struct StorageOf<DataType::kFloat64> { using type = double; };
template <> struct StorageOf<DataType::kBool> { using type = std::uint8_t; };
// clang-format on

constexpr bool is_half(DataType d) { return d == DataType::kFloat16 || d == DataType::kBfloat16; }

// Wide enough that the sum of 2^31 contributions cannot overflow.
template <typename Integer>
using WideOf =
    std::conditional_t<sizeof(Integer) == 8,
                       std::conditional_t<std::is_signed_v<Integer>, __int128, unsigned __int128>,
                       std::conditional_t<std::is_signed_v<Integer>, std::int64_t, std::uint64_t>>;

template <DataType D, ReduceOp O>
struct Traits {
  using Storage = typename StorageOf<D>::type;
  static constexpr bool kHalf = is_half(D);
  static constexpr bool kBool = D == DataType::kBool;
  static constexpr bool kFloating = kHalf || std::is_floating_point_v<Storage>;
  static constexpr bool kWide = !kFloating && !kBool && O == ReduceOp::kAvg;
  using Acc =
      std::conditional_t<kHalf, float,
                         typename std::conditional_t<kWide, std::type_identity<WideOf<Storage>>,
                                                     std::type_identity<Storage>>::type>;
  static constexpr std::size_t kBlock = kReduceBlockBytes / sizeof(Acc);
};

template <typename T>
KOLO_ALWAYS_INLINE T load_raw(const std::byte* base, std::size_t i) {
  T value;
  __builtin_memcpy(&value, base + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
KOLO_ALWAYS_INLINE void store_raw(std::byte* base, std::size_t i, T value) {
  __builtin_memcpy(base + i * sizeof(T), &value, sizeof(T));
}

// Where operands of a combine come from: tensors (converted on the way) or partials.
template <typename T>
struct TensorSource {
  const std::byte* base;
  typename T::Acc prescale;

  KOLO_ALWAYS_INLINE typename T::Acc at(std::size_t i) const {
    const auto value = load_raw<typename T::Storage>(base, i);
    if constexpr (T::kBool) {
      return value != 0;
    } else if constexpr (T::kFloating) {
      return value * prescale;
    } else {
      return value;
    }
  }
};

template <typename T>
struct PartialSource {
  const std::byte* base;

  KOLO_ALWAYS_INLINE typename T::Acc at(std::size_t i) const {
    const auto value = load_raw<typename T::Acc>(base, i);
    if constexpr (T::kBool) {
      return value != 0;  // a partial off the wire may be a raw tensor
    } else {
      return value;
    }
  }
};

template <typename Float>
struct BitsOf;
template <>
struct BitsOf<float> {
  using type = std::uint32_t;
};
template <>
struct BitsOf<double> {
  using type = std::uint64_t;
};

// NaN wins; of two zeros the one that the sign makes smaller or larger.
template <bool kMax, typename Float>
KOLO_ALWAYS_INLINE Float extreme(Float a, Float b) {
  using Bits = typename BitsOf<Float>::type;
  const Bits a_bits = __builtin_bit_cast(Bits, a);
  const Bits b_bits = __builtin_bit_cast(Bits, b);
  const Float equal = __builtin_bit_cast(Float, kMax ? (a_bits & b_bits) : (a_bits | b_bits));
  const Float picked = (kMax ? a > b : a < b) ? a : b;  // b when either is NaN
  const Float ordered = a == b ? equal : picked;
  return a != a ? a : ordered;
}

template <typename T, ReduceOp O>
KOLO_ALWAYS_INLINE typename T::Acc combine(typename T::Acc a, typename T::Acc b) {
  using Acc = typename T::Acc;
  if constexpr (T::kBool) {
    constexpr bool kOr = O == ReduceOp::kSum || O == ReduceOp::kMax;
    return static_cast<Acc>(kOr ? (a | b) : (a & b));
  } else if constexpr (O == ReduceOp::kMax || O == ReduceOp::kMin) {
    constexpr bool kMax = O == ReduceOp::kMax;
    if constexpr (T::kFloating) {
      return extreme<kMax>(a, b);
    } else {
      return (kMax ? a > b : a < b) ? a : b;
    }
  } else if constexpr (T::kFloating || T::kWide) {
    return O == ReduceOp::kProd ? a * b : a + b;
  } else {
    using Unsigned = std::make_unsigned_t<Acc>;
    const auto left = 1u * static_cast<Unsigned>(a);  // unsigned, and at least as wide as int
    const auto right = static_cast<Unsigned>(b);
    return static_cast<Acc>(O == ReduceOp::kProd ? left * right : left + right);
  }
}

template <typename T>
struct Finish {
  typename T::Acc divisor;
  typename T::Acc postscale;
};

template <typename T>
Finish<T> make_finish(const ReduceScale& scale) {
  using Acc = typename T::Acc;
  if constexpr (T::kFloating) {
    return {static_cast<Acc>(scale.contributors), static_cast<Acc>(scale.postscale)};
  } else {
    return {static_cast<Acc>(scale.contributors), Acc{1}};
  }
}

template <typename T, ReduceOp O>
KOLO_ALWAYS_INLINE typename T::Acc finish(typename T::Acc value, const Finish<T>& by) {
  if constexpr (O == ReduceOp::kAvg) value = value / by.divisor;
  if constexpr (T::kFloating) {
    value = value * by.postscale;
    using Acc = typename T::Acc;
    constexpr Acc kQuietNan = sizeof(Acc) == 4 ? static_cast<Acc>(__builtin_nanf(""))
                                               : static_cast<Acc>(__builtin_nan(""));
    value = value != value ? kQuietNan : value;
  }
  return value;
}

// out[i] = (kFinal: finished) value(i). Output and operands may be the very same memory (never
// shifted), which is what ivdep promises. Halves are finished in the accumulator's type, then
// narrowed by narrow_block.
template <typename T, ReduceOp O, bool kFinal, typename Value>
KOLO_ALWAYS_INLINE void write_block(std::byte* out, std::size_t count, const Finish<T>& by,
                                    const Value& value) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (!kFinal) {
      store_raw<typename T::Acc>(out, i, value(i));
    } else if constexpr (T::kHalf) {
      store_raw<typename T::Acc>(out, i, finish<T, O>(value(i), by));
    } else {
      store_raw<typename T::Storage>(out, i,
                                     static_cast<typename T::Storage>(finish<T, O>(value(i), by)));
    }
  }
}

template <DataType D>
void widen_block(const std::byte* in, float prescale, std::byte* out, std::size_t count) {
  std::size_t i = 0;
#if defined(__F16C__) && defined(__AVX2__)
  if constexpr (D == DataType::kFloat16) {
    const __m256 scale = _mm256_set1_ps(prescale);
    for (; i + 8 <= count; i += 8) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i));
      const __m256 floats = _mm256_mul_ps(_mm256_cvtph_ps(halves), scale);
      _mm256_storeu_ps(reinterpret_cast<float*>(out + 4 * i), floats);
    }
  }
#endif
#pragma GCC ivdep
  for (std::size_t j = i; j < count; ++j) {
    const auto half = load_raw<std::uint16_t>(in, j);
    const float value = D == DataType::kFloat16 ? widen_f16(half) : widen_bf16(half);
    store_raw<float>(out, j, value * prescale);
  }
}

template <DataType D>
void narrow_block(const std::byte* in, std::byte* out, std::size_t count) {
  std::size_t i = 0;
#if defined(__F16C__) && defined(__AVX2__)
  if constexpr (D == DataType::kFloat16) {
    for (; i + 8 <= count; i += 8) {
      const __m256 floats = _mm256_loadu_ps(reinterpret_cast<const float*>(in + 4 * i));
      const __m128i halves = _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i), halves);
    }
  }
#endif
#pragma GCC ivdep
  for (std::size_t j = i; j < count; ++j) {
    const float value = load_raw<float>(in, j);
    store_raw<std::uint16_t>(out, j,
                             D == DataType::kFloat16 ? narrow_f16(value) : narrow_bf16(value));
  }
}

// Which part of a reduction is done: all of it, or that before or after the partials.
enum class Part { kWhole, kToPartial, kFromPartials };

// One block of up to T::kBlock elements of a reduction: runs the steps over a stack of blocks.
template <DataType D, ReduceOp O, Part P>
class BlockReducer {
 public:
  using T = Traits<D, O>;
  // Leaves that are converted before they are combined.
  static constexpr bool kLifted = T::kHalf || (T::kWide && P == Part::kFromPartials);
  using Leaf = std::conditional_t<kLifted, PartialSource<T>, TensorSource<T>>;

  explicit BlockReducer(const ReduceCall& call) : call_(call), by_(make_finish<T>(call.scale)) {}

  void run(std::size_t first, std::size_t count) {
    first_ = first;
    count_ = count;
    std::byte* top = call_.scratch - kReduceBlockBytes;  // block of the stack's top
    for (std::size_t s = 0; s + 1 < call_.step_count; ++s) step<false>(call_.steps[s], top);
    step<true>(call_.steps[call_.step_count - 1], top);
  }

 private:
  using Step = ReductionOrder::Step;

  template <bool kFinal>
  void step(const Step& step, std::byte*& top) {
    switch (step.kind) {
      case Step::Kind::kLeaf: {
        top += kReduceBlockBytes;
        const Leaf a = leaf(step.a, 0);
        return write<kFinal>(top, [=](std::size_t i) { return a.at(i); });
      }
      case Step::Kind::kPair: {
        top += kReduceBlockBytes;
        const Leaf a = leaf(step.a, 0), b = leaf(step.b, 1);
        return write<kFinal>(top, [=](std::size_t i) { return combine<T, O>(a.at(i), b.at(i)); });
      }
      case Step::Kind::kQuad: {
        top += kReduceBlockBytes;
        const Leaf a = leaf(step.a, 0), b = leaf(step.b, 1);
        const Leaf c = leaf(step.c, 2), d = leaf(step.d, 3);
        return write<kFinal>(top, [=](std::size_t i) {
          return combine<T, O>(combine<T, O>(a.at(i), b.at(i)), combine<T, O>(c.at(i), d.at(i)));
        });
      }
      case Step::Kind::kCombine: {
        const PartialSource<T> right{top};
        top -= kReduceBlockBytes;
        const PartialSource<T> left{top};
        return write<kFinal>(top,
                             [=](std::size_t i) { return combine<T, O>(left.at(i), right.at(i)); });
      }
      case Step::Kind::kCombineLeaf: {
        const PartialSource<T> left{top};
        const Leaf a = leaf(step.a, 0);
        return write<kFinal>(top,
                             [=](std::size_t i) { return combine<T, O>(left.at(i), a.at(i)); });
      }
    }
  }

  // A leaf of the current block; what is to be lifted goes to one of four blocks behind the stack.
  Leaf leaf(int rank, std::size_t place) {
    const bool partial = P == Part::kFromPartials && call_.partials[rank] != 0;
    const std::size_t bytes = partial ? sizeof(typename T::Acc) : sizeof(typename T::Storage);
    const std::byte* in = call_.inputs[rank] + first_ * bytes;
    if constexpr (kLifted) {
      if (partial) return {in};
      std::byte* block =
          call_.scratch + (static_cast<std::size_t>(call_.stack_depth) + place) * kReduceBlockBytes;
      lift_block(in, block);
      return {block};
    } else {
      return {in,
              partial ? typename T::Acc{1} : static_cast<typename T::Acc>(call_.scale.prescale)};
    }
  }

  void lift_block(const std::byte* in, std::byte* block) {
    if constexpr (T::kHalf) {
      widen_block<D>(in, static_cast<float>(call_.scale.prescale), block, count_);
    } else {
      const TensorSource<T> source{in, typename T::Acc{1}};
      write_block<T, O, false>(block, count_, by_, [=](std::size_t i) { return source.at(i); });
    }
  }

  template <bool kFinal, typename Value>
  void write(std::byte* top, const Value& value) {
    if constexpr (!kFinal) {
      write_block<T, O, false>(top, count_, by_, value);
    } else if constexpr (P == Part::kToPartial) {
      write_block<T, O, false>(call_.output + first_ * sizeof(typename T::Acc), count_, by_, value);
    } else {
      std::byte* out = call_.output + first_ * sizeof(typename T::Storage);
      if constexpr (T::kHalf) {
        write_block<T, O, true>(top, count_, by_, value);
        narrow_block<D>(top, out, count_);
      } else {
        write_block<T, O, true>(out, count_, by_, value);
      }
    }
  }

  const ReduceCall& call_;
  const Finish<T> by_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

template <DataType D, ReduceOp O, Part P>
void reduce(const ReduceCall& call) {
  using T = Traits<D, O>;
  BlockReducer<D, O, P> reducer(call);
  for (std::size_t first = 0; first < call.count; first += T::kBlock) {
    const std::size_t left = call.count - first;
    reducer.run(first, left < T::kBlock ? left : T::kBlock);
  }
}

// The ring's steps share one shape: operands from a tensor and a partial, block by block.
template <DataType D, ReduceOp O, bool kFold, bool kFinal>
void ring_step(const std::byte* partial, const std::byte* input, std::byte* out, std::size_t count,
               const ReduceScale& scale) {
  using T = Traits<D, O>;
  using Acc = typename T::Acc;
  const Finish<T> by = make_finish<T>(scale);
  alignas(kReduceScratchAlign) std::byte widened[T::kHalf ? kReduceBlockBytes : 1];
  constexpr std::size_t kOutBytes = kFinal ? sizeof(typename T::Storage) : sizeof(Acc);
  for (std::size_t first = 0; first < count; first += T::kBlock) {
    const std::size_t n = count - first < T::kBlock ? count - first : T::kBlock;
    const std::byte* in = input + first * sizeof(typename T::Storage);
    std::byte* to = out + first * kOutBytes;
    const auto write = [&](const auto& leaf) {
      std::byte* block = T::kHalf && kFinal ? widened : to;
      if constexpr (kFold) {
        const PartialSource<T> left{partial + first * sizeof(Acc)};
        write_block<T, O, kFinal>(
            block, n, by, [=](std::size_t i) { return combine<T, O>(left.at(i), leaf.at(i)); });
      } else {
        write_block<T, O, kFinal>(block, n, by, [=](std::size_t i) { return leaf.at(i); });
      }
    };
    if constexpr (T::kHalf) {
      widen_block<D>(in, static_cast<float>(scale.prescale), widened, n);
      write(PartialSource<T>{widened});
      if constexpr (kFinal) narrow_block<D>(widened, to, n);
    } else {
      write(TensorSource<T>{in, static_cast<Acc>(scale.prescale)});
    }
  }
}

template <DataType D, ReduceOp O>
void lift(const std::byte* input, std::byte* partial, std::size_t count, const ReduceScale& scale) {
  ring_step<D, O, false, false>(nullptr, input, partial, count, scale);
}

template <DataType D, ReduceOp O>
void fold(std::byte* partial, const std::byte* input, std::size_t count, const ReduceScale& scale) {
  ring_step<D, O, true, false>(partial, input, partial, count, scale);
}

template <DataType D, ReduceOp O>
void fold_finish(const std::byte* partial, const std::byte* input, std::byte* output,
                 std::size_t count, const ReduceScale& scale) {
  ring_step<D, O, true, true>(partial, input, output, count, scale);
}

template <DataType D, ReduceOp O>
constexpr ReduceKernel kernel() {
  using T = Traits<D, O>;
  return {.accumulator_bytes = sizeof(typename T::Acc),
          .lift_is_copy = !T::kHalf && !T::kWide,
          .reduce = reduce<D, O, Part::kWhole>,
          .reduce_partial = reduce<D, O, Part::kToPartial>,
          .combine = reduce<D, O, Part::kFromPartials>,
          .lift = lift<D, O>,
          .fold = fold<D, O>,
          .fold_finish = fold_finish<D, O>};
}

struct KernelTable {
  ReduceKernel rows[kDataTypeCount][kReduceOpCount];
};

template <DataType D>
constexpr void fill(KernelTable& table) {
  auto& row = table.rows[static_cast<std::size_t>(D)];
  row[static_cast<std::size_t>(ReduceOp::kSum)] = kernel<D, ReduceOp::kSum>();
  row[static_cast<std::size_t>(ReduceOp::kProd)] = kernel<D, ReduceOp::kProd>();
  row[static_cast<std::size_t>(ReduceOp::kMax)] = kernel<D, ReduceOp::kMax>();
  row[static_cast<std::size_t>(ReduceOp::kMin)] = kernel<D, ReduceOp::kMin>();
  if constexpr (D != DataType::kBool) {
    row[static_cast<std::size_t>(ReduceOp::kAvg)] = kernel<D, ReduceOp::kAvg>();
  }
}

// Holes (fp8, the average of bools) stay null; reduce_kernel() checks.
constexpr KernelTable make_table() {
  KernelTable table{};
  fill<DataType::kInt8>(table);
  fill<DataType::kUint8>(table);
  fill<DataType::kInt16>(table);
  fill<DataType::kUint16>(table);
  fill<DataType::kInt32>(table);
  fill<DataType::kUint32>(table);
  fill<DataType::kInt64>(table);
  fill<DataType::kUint64>(table);
  fill<DataType::kFloat16>(table);
  fill<DataType::kBfloat16>(table);
  fill<DataType::kFloat32>(table);
  fill<DataType::kFloat64>(table);
  fill<DataType::kBool>(table);
  return table;
}

}  // namespace
}  // namespace kolo::internal
