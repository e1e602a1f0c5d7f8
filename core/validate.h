// Local checks of a submission: everything one rank can know to be wrong by itself.
// Pure; the error names the tensor, the bad value and the cure.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "core/request.h"

namespace kolo::internal {

inline constexpr std::size_t kMaxNameBytes = 4096;
inline constexpr std::size_t kMaxDims = 32;

// `size` is the number of ranks of the process set, `place` this one's among them, `ranks` their
// numbers in the job (none: 0 to size - 1). With place -1 (not known) a buffer in place may stand
// at any rank's block, and a broadcast needs its input on every rank.
[[nodiscard]] Status validate(const Submission& submission, int size, int place = -1,
                              std::span<const int> ranks = {});

// A call that makes or ends a process set; the ranks (its shape) are sorted.
[[nodiscard]] Status validate_set(const Submission& submission, int job_size);

// A tensor's or group's name as a user may give it; empty is fine (a sequence number).
[[nodiscard]] Status validate_name(std::string_view name);

}  // namespace kolo::internal
