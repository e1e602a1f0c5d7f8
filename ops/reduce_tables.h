// The tables of kernels, one per instruction set; chosen from by reduce_kernel() only.
#pragma once

#include "ops/reduce_kernels.h"

namespace kolo::internal {

const ReduceKernel* portable_kernel(DataType dtype, ReduceOp op);
#if defined(__x86_64__)
const ReduceKernel* avx2_kernel(DataType dtype, ReduceOp op);
#endif

}  // namespace kolo::internal
