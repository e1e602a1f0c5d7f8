// Runs random programs as one rank of a job, whose context is the caller's. A failed check ends the
// process with kFailed; so does a program that stands still for kStillSeconds.
#pragma once

#include <kolo/kolo.h>

#include <cstdint>
#include <string>

#include "tests/multiproc/random/program.h"

namespace kolo::programs {

inline constexpr int kStillSeconds = 90;

struct Dose {
  std::uint64_t seed = 1;  // of the first program; the others have the numbers after it
  int programs = 1;
  int operations = 40;  // of each, about
  Abilities abilities;
  std::string without;  // as an argument
  std::string replay;   // the command that runs them again, up to the seed
};

void run_programs(kolo_context* context, const Dose& dose);

}  // namespace kolo::programs
