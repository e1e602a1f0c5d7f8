// KOLO_CHECK: a programmer's assumption that stays checked in release builds.
//
// A failed check throws Bug, the only exception that kolo's own code throws. It is caught at the
// C boundary (bindings_c/api.cc) and at the background thread's entry, where it breaks the
// context with an "internal error" status; it never leaves the library and never ends the process.
#pragma once

#include <stdexcept>
#include <string>

namespace kolo::internal {

class Bug : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void throw_bug(const char* file, int line, const char* condition);

}  // namespace kolo::internal

#define KOLO_CHECK(condition)                                      \
  do {                                                             \
    if (!(condition)) [[unlikely]] {                               \
      ::kolo::internal::throw_bug(__FILE__, __LINE__, #condition); \
    }                                                              \
  } while (false)
