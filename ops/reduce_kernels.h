// Reduction kernels: N inputs to one output, element by element, for every dtype and op.
//
// What one element becomes, whatever the blocking or instruction set:
//   1. load: the stored value becomes the accumulator's type (f16, bf16: f32; integer avg: 64 or
//      128 bits; else the same), times prescale (floating types)
//   2. combine, in the order's tree. Integers wrap; bool: sum, max = or, prod, min = and, any
//      non-zero byte is true; min, max: NaN wins, -0 < +0
//   3. finish: avg divides by the number of contributors (integers toward zero); times postscale;
//      any NaN becomes the one quiet NaN; one rounding to the dtype
// Pure functions of their arguments; the caller holds an MxcsrGuard. Any alignment of tensors.
#pragma once

#include <cstddef>
#include <memory>

#include "base/types.h"
#include "ops/reduction_order.h"

namespace kolo::internal {

// Blocks of partial results stay in the first-level cache.
inline constexpr std::size_t kReduceBlockBytes = 4096;
// Scratch for a reduction in this order; aligned to kReduceScratchAlign.
constexpr std::size_t reduce_scratch_bytes(int stack_depth) {
  return (static_cast<std::size_t>(stack_depth) + 4) * kReduceBlockBytes;
}
inline constexpr std::size_t kReduceScratchAlign = 64;

struct ReduceScale {
  double prescale = 1.0;
  double postscale = 1.0;
  int contributors = 1;  // avg divides by it
};

struct ReduceCall {
  const ReductionOrder::Step* steps = nullptr;
  std::size_t step_count = 0;
  int stack_depth = 0;
  const std::byte* const* inputs = nullptr;  // by rank; those of absent ranks are not read
  const unsigned char* partials = nullptr;   // combine only: whether inputs[i] is a partial
  std::byte* output = nullptr;               // may be one of the inputs, unless they are partials
  std::size_t count = 0;
  ReduceScale scale;
  std::byte* scratch = nullptr;  // reduce_scratch_bytes(stack_depth)
};

// The functions of one dtype and op. A partial is an array of accumulators (aligned).
struct ReduceKernel {
  std::size_t accumulator_bytes = 0;
  // A partial of one contribution has the same bytes as the input (given prescale 1).
  bool lift_is_copy = false;
  void (*reduce)(const ReduceCall& call) = nullptr;
  // The same up to the finish: output is a partial.
  void (*reduce_partial)(const ReduceCall& call) = nullptr;
  // The rest: inputs are partials, or tensors where a partial would hold one contribution.
  void (*combine)(const ReduceCall& call) = nullptr;
  // partial = load(input)
  void (*lift)(const std::byte* input, std::byte* partial, std::size_t count,
               const ReduceScale& scale) = nullptr;
  // partial = partial + load(input)
  void (*fold)(std::byte* partial, const std::byte* input, std::size_t count,
               const ReduceScale& scale) = nullptr;
  // output = finish(partial + load(input)); output may be input
  void (*fold_finish)(const std::byte* partial, const std::byte* input, std::byte* output,
                      std::size_t count, const ReduceScale& scale) = nullptr;
};

enum class KernelVariant { kPortable, kAvx2 };

// Whether this processor (and this build) can run the variant.
[[nodiscard]] bool kernel_variant_runs(KernelVariant variant);
[[nodiscard]] KernelVariant best_kernel_variant();
// can_reduce(dtype, op) must hold.
[[nodiscard]] const ReduceKernel& reduce_kernel(DataType dtype, ReduceOp op, KernelVariant variant);
[[nodiscard]] const ReduceKernel& reduce_kernel(DataType dtype, ReduceOp op);

struct AlignedDelete {
  void operator()(std::byte* memory) const;
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedDelete>;
// Uninitialised memory aligned to kReduceScratchAlign; throws std::bad_alloc.
[[nodiscard]] AlignedBytes allocate_aligned(std::size_t bytes);

}  // namespace kolo::internal
