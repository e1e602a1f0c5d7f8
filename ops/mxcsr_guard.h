// MxcsrGuard: the default floating-point environment (round to nearest, no flush to zero) while it
// lives; then the caller's again. A program built with -ffast-math sets flush-to-zero in its
// threads, and a caller's thread may drive kolo: sums must not depend on that.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace kolo::internal {

class MxcsrGuard {
 public:
#if defined(__SSE__)
  MxcsrGuard() : saved_(_mm_getcsr()) {
    if (saved_ != kDefault) _mm_setcsr(kDefault);
  }
  ~MxcsrGuard() { _mm_setcsr(saved_); }  // also undoes the exception flags raised meanwhile
#else
  MxcsrGuard() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~MxcsrGuard() { std::fesetenv(&saved_); }
#endif
  MxcsrGuard(const MxcsrGuard&) = delete;
  MxcsrGuard& operator=(const MxcsrGuard&) = delete;

 private:
#if defined(__SSE__)
  static constexpr unsigned kDefault = 0x1f80;  // exceptions masked, nearest, no FTZ, no DAZ
  unsigned saved_;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace kolo::internal
