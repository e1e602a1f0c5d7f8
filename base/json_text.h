// Text inside JSON. Pure.
#pragma once

#include <string>
#include <string_view>

namespace kolo::internal {

// The content of a JSON string; bytes that are not ASCII become \u00XX, one per byte, so that names
// of any bytes can be read back.
void append_json_escaped(std::string_view text, std::string& out);

// With the quotes.
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace kolo::internal
