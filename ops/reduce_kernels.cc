#include "ops/reduce_kernels.h"

#include <new>

#include "base/check.h"
#include "ops/reduce_tables.h"

namespace kolo::internal {

bool kernel_variant_runs(KernelVariant variant) {
  if (variant == KernelVariant::kPortable) return true;
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
#else
  return false;
#endif
}

KernelVariant best_kernel_variant() {
  return kernel_variant_runs(KernelVariant::kAvx2) ? KernelVariant::kAvx2
                                                   : KernelVariant::kPortable;
}

const ReduceKernel& reduce_kernel(DataType dtype, ReduceOp op, KernelVariant variant) {
  KOLO_CHECK(can_reduce(dtype, op));
#if defined(__x86_64__)
  if (variant == KernelVariant::kAvx2) return *avx2_kernel(dtype, op);
#else
  KOLO_CHECK(variant == KernelVariant::kPortable);
#endif
  return *portable_kernel(dtype, op);
}

const ReduceKernel& reduce_kernel(DataType dtype, ReduceOp op) {
  return reduce_kernel(dtype, op, best_kernel_variant());
}

void AlignedDelete::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{kReduceScratchAlign});
}

AlignedBytes allocate_aligned(std::size_t bytes) {
  return AlignedBytes(
      static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kReduceScratchAlign})));
}

}  // namespace kolo::internal
