// Small words that the benchmark programs share: ending with a message, formatting, numbers with
// units. Pure but for die().
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace kolo::bench {

// Prints "error: <why>" and ends the process with code 1, without destructors: a library may be in
// the middle of anything, and a benchmark has nothing to save.
[[noreturn]] void die(const std::string& why);

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  const int length = std::snprintf(nullptr, 0, pattern, values...);
  std::string text(static_cast<std::size_t>(length), '\0');
  std::snprintf(text.data(), text.size() + 1, pattern, values...);
  return text;
}

// A whole number within the bounds, and nothing else in the text.
std::optional<std::size_t> parse_number(std::string_view text, std::size_t min, std::size_t max);

// "64", "64K", "64M" or "1G" (also in lower case), in bytes; at most 1 TiB.
std::optional<std::size_t> parse_bytes(std::string_view text);

}  // namespace kolo::bench
