// Local checks of a submission: everything one rank can know to be wrong by itself.
// Pure; the error names the tensor, the bad value and the cure.
#pragma once

#include <string_view>

#include "base/status.h"
#include "core/request.h"

namespace kolo::internal {

inline constexpr std::size_t kMaxNameBytes = 4096;
inline constexpr std::size_t kMaxDims = 32;

// `size` is the number of ranks of the process set, `rank` this one's place in it. With rank -1
// (not known) an all-gather's input may stand at any rank's place of the output, and a broadcast
// needs its input on every rank.
[[nodiscard]] Status validate(const Submission& submission, int size, int rank = -1);

// A tensor's or group's name as a user may give it; empty is fine (a sequence number).
[[nodiscard]] Status validate_name(std::string_view name);

}  // namespace kolo::internal
