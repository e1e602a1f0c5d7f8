#include "bench/common/text.h"

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <iostream>

namespace kolo::bench {

void die(const std::string& why) {
  std::cout << std::flush;
  std::cerr << "error: " << why << std::endl;
  std::_Exit(1);
}

std::optional<std::size_t> parse_number(std::string_view text, std::size_t min, std::size_t max) {
  std::size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end || value < min || value > max) return std::nullopt;
  return value;
}

std::optional<std::size_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kSuffixes = "KMG";
  constexpr std::size_t kMost = std::size_t{1} << 40;
  std::size_t unit = 1;
  if (!text.empty()) {
    const auto last = static_cast<char>(std::toupper(static_cast<unsigned char>(text.back())));
    const std::size_t suffix = kSuffixes.find(last);
    if (suffix != std::string_view::npos) {
      unit = std::size_t{1} << (10 * (suffix + 1));
      text.remove_suffix(1);
    }
  }
  const auto number = parse_number(text, 0, kMost / unit);
  if (!number) return std::nullopt;
  return *number * unit;
}

}  // namespace kolo::bench
