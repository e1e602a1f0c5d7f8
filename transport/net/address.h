// "host:port" as text. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace kolo::internal {

struct HostPort {
  std::string host;  // a name or an address, without brackets
  std::uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};

// "10.0.0.1:80", "[::1]:80", "name:80". INVALID_ARGUMENT quotes a text that is none of these.
[[nodiscard]] Result<HostPort> parse_host_port(std::string_view text);
[[nodiscard]] std::string to_text(const HostPort& address);

}  // namespace kolo::internal
