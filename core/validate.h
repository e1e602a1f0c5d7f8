// Local checks of a submission: everything one rank can know to be wrong by itself.
// Pure; the error names the tensor, the bad value and the cure.
#pragma once

#include "base/status.h"
#include "core/request.h"

namespace kolo::internal {

// `size` is the number of ranks of the process set.
[[nodiscard]] Status validate(const Submission& submission, int size);

}  // namespace kolo::internal
