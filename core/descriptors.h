// Room for the descriptors that a context will hold: known before it opens any, so that a job never
// begins that cannot be connected.
#pragma once

#include <cstddef>

#include "base/options.h"
#include "base/status.h"

namespace kolo::internal {

// At most so many are open at a time in this rank's context. Pure.
[[nodiscard]] std::size_t descriptors_of(const Config& config);

// Raises this process's soft limit where it leaves no room for them beside those that are open, and
// then by as many as the context takes: the program keeps the room that it had.
// Errors: RESOURCE, naming limit and need, if the hard limit forbids it.
[[nodiscard]] Status make_room_for_descriptors(const Config& config);

}  // namespace kolo::internal
