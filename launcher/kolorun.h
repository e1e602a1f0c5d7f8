// kolorun as a function: what main() does once it has its arguments and environment.
#pragma once

#include <span>
#include <string>

#include "launcher/rank_environment.h"

namespace kolo::internal {

// The exit code. Writes to stdout and stderr.
int kolorun(std::span<const std::string> arguments, Environment environment);

}  // namespace kolo::internal
