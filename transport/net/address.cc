#include "transport/net/address.h"

#include <charconv>

namespace kolo::internal {

Result<HostPort> parse_host_port(std::string_view text) {
  const auto bad = [&] {
    std::string message = "\"";
    message += text;
    message +=
        "\" is not an address: write host:port, an IPv6 address in brackets, and a port "
        "from 0 to 65535";
    return invalid_argument(std::move(message));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad();
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad();
  }
  if (host.find_first_of("[]") != std::string_view::npos) return bad();
  HostPort address{std::string(host), 0};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
  if (host.empty() || error != std::errc() || end != digits.data() + digits.size()) return bad();
  return address;
}

std::string to_text(const HostPort& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  std::string text = brackets ? "[" + address.host + "]" : address.host;
  text += ":";
  text += std::to_string(address.port);
  return text;
}

}  // namespace kolo::internal
