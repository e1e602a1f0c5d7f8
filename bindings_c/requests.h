// What a user's kolo_request says: the number of core's request, and how it lives. Pure.
#pragma once

#include "core/context.h"
#include "kolo/kolo.h"

namespace kolo::internal {

// Core's ids stay below these.
inline constexpr kolo_request kPersistentBit = kolo_request{1} << 63;
inline constexpr kolo_request kOutputBit = kolo_request{1} << 62;  // it holds an output

[[nodiscard]] inline bool is_persistent(kolo_request request) {
  return (request & kPersistentBit) != 0;
}
// Completing it does not release it.
[[nodiscard]] inline bool is_kept(kolo_request request) {
  return (request & (kPersistentBit | kOutputBit)) != 0;
}
[[nodiscard]] inline RequestId id_of(kolo_request request) {
  return request & ~(kPersistentBit | kOutputBit);
}

}  // namespace kolo::internal
