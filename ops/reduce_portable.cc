// The reduction kernels for any processor.
#include "ops/reduce_loops.h"
#include "ops/reduce_tables.h"

namespace kolo::internal {
namespace {
constexpr KernelTable kTable = make_table();
}  // namespace

const ReduceKernel* portable_kernel(DataType dtype, ReduceOp op) {
  return &kTable.rows[static_cast<int>(dtype)][static_cast<int>(op)];
}

}  // namespace kolo::internal
