// What --check-build prints. Opens libkolo.so, which knows what it finds on this machine.
#pragma once

#include <string>

namespace kolo::internal {

std::string check_build_text();

}  // namespace kolo::internal
