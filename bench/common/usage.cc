#include "bench/common/usage.h"

#include <cerrno>
#include <cstdlib>
#include <iostream>

#include "bench/common/text.h"

namespace kolo::bench {

void usage_error(const std::string& why) {
  std::cerr << program_invocation_short_name << ": " << why << std::endl;
  std::exit(kUsageExit);
}

std::size_t number_option(const std::string& what, const std::string& text, std::size_t min,
                          std::size_t max) {
  const auto value = parse_number(text, min, max);
  if (!value) {
    usage_error(what + " wants a number from " + std::to_string(min) + " to " +
                std::to_string(max) + ", not '" + text + "'");
  }
  return *value;
}

int whole_option(const std::string& what, const std::string& text, std::size_t min,
                 std::size_t max) {
  return static_cast<int>(number_option(what, text, min, max));
}

std::size_t bytes_option(const std::string& what, const std::string& text) {
  const auto value = parse_bytes(text);
  if (!value) usage_error(what + " wants a size such as 8, 64K or 1G, not '" + text + "'");
  return *value;
}

}  // namespace kolo::bench
