// The values of options on a command line; a wrong one ends the program with a line that says what
// it wants.
#pragma once

#include <cstddef>
#include <string>

namespace kolo::bench {

inline constexpr int kUsageExit = 2;

// Prints "<program>: <why>" to the standard error and ends the program with kUsageExit.
[[noreturn]] void usage_error(const std::string& why);

// The number that option `what` wants, within the bounds.
std::size_t number_option(const std::string& what, const std::string& text, std::size_t min,
                          std::size_t max);
// The same as an int, which `max` must fit.
int whole_option(const std::string& what, const std::string& text, std::size_t min,
                 std::size_t max);
// A size such as 64K, in bytes.
std::size_t bytes_option(const std::string& what, const std::string& text);

}  // namespace kolo::bench
