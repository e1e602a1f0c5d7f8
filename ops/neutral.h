// Neutral elements: what a rank that has joined brings to a reduction, so that the result has the
// very bits that the others' tree gives without it. (An average's divisor is Reduction's.)
//
//   sum, avg  the zero that is -0 after the prescale: x + -0 is x, also for x = -0
//   prod      1
//   max, min  the least, or the greatest, of all: for floats the infinity that is so after prescale
//   bool      false where the op means "or", true where it means "and"
//   adasum    +0: a zero vector leaves the other one as it is
#pragma once

#include <cstddef>

#include "base/types.h"

namespace kolo::internal {

// Fills memory[count], at any alignment. can_reduce(dtype, op) must hold, and the prescale be 1 for
// products (and for integers): no element could be neutral after another one. A prescale that is
// infinite in the accumulator's type makes NaNs.
void fill_neutral(DataType dtype, ReduceOp op, double prescale, void* memory, std::size_t count);

}  // namespace kolo::internal
