// What --check-build prints. Pure.
#pragma once

#include <string>

namespace kolo::internal {

std::string check_build_text();

}  // namespace kolo::internal
