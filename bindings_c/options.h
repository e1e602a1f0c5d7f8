// From a user's kolo_options to a submission. Pure.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "core/context.h"
#include "kolo/kolo.h"

namespace kolo::internal {

inline constexpr std::int64_t kMostMilliseconds = std::int64_t{1} << 42;  // fits Nanos by far

// The options, also as an older header has them; INVALID_ARGUMENT, UNSUPPORTED: they cannot be
// read.
Result<kolo_options> known_options(const kolo_options& options);
// Checks `options` and copies it into `submission`, the name first; INVALID_ARGUMENT names
// the field and the cure.
Status apply_options(const kolo_options& options, Submission& submission);

}  // namespace kolo::internal
