#include "base/check.h"

namespace kolo::internal {

void throw_bug(const char* file, int line, const char* condition) {
  throw Bug(std::string(file) + ":" + std::to_string(line) + ": check failed: " + condition);
}

}  // namespace kolo::internal
