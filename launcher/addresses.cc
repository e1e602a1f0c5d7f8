#include "launcher/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <memory>

#include "launcher/options.h"

namespace kolo::internal {
namespace {

struct RawAddress {
  std::array<unsigned char, 16> bytes{};
  int bits = 0;  // 32, 128; 0: no address
};

RawAddress parse_address(std::string_view text) {
  RawAddress raw;
  const std::string copy(text);
  if (inet_pton(AF_INET, copy.c_str(), raw.bytes.data()) == 1)
    raw.bits = 32;
  else if (inet_pton(AF_INET6, copy.c_str(), raw.bytes.data()) == 1)
    raw.bits = 128;
  return raw;
}

bool in_network(const RawAddress& address, const RawAddress& network, int prefix_bits) {
  if (address.bits != network.bits) return false;
  for (int bit = 0; bit < prefix_bits; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    const int mask = 0x80 >> (bit % 8);
    if (((address.bytes[byte] ^ network.bytes[byte]) & mask) != 0) return false;
  }
  return true;
}

bool is_bridge(std::string_view name) {
  return name.starts_with("docker") || name.starts_with("virbr") || name.starts_with("cni") ||
         name.starts_with("br-");
}

std::vector<std::string_view> split_commas(std::string_view text) {
  std::vector<std::string_view> items;
  while (true) {
    const std::size_t comma = text.find(',');
    items.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return items;
    text = text.substr(comma + 1);
  }
}

std::string describe(const std::vector<HostAddress>& present) {
  std::string text;
  for (const HostAddress& a : present) {
    text += (text.empty() ? "" : ", ") + a.interface + " " + a.address;
  }
  return text.empty() ? "none" : text;
}

std::vector<HostAddress> match_item(const std::vector<HostAddress>& present,
                                    std::string_view item) {
  std::vector<HostAddress> matches;
  const auto take_if = [&](auto&& condition) {
    std::copy_if(present.begin(), present.end(), std::back_inserter(matches), condition);
  };
  const std::size_t slash = item.find('/');
  const RawAddress raw = parse_address(item.substr(0, slash));
  if (raw.bits != 0) {
    long long prefix = raw.bits;
    if (slash != std::string_view::npos &&
        !parse_number(item.substr(slash + 1), 0, raw.bits, prefix)) {
      return matches;
    }
    take_if([&](const HostAddress& a) {
      return in_network(parse_address(a.address), raw, static_cast<int>(prefix));
    });
    return matches;
  }
  if (item.empty()) return matches;
  take_if([&](const HostAddress& a) { return a.interface == item; });
  if (matches.empty()) {
    take_if([&](const HostAddress& a) { return !a.loopback && a.interface.starts_with(item); });
  }
  return matches;
}

std::vector<HostAddress> default_choice(const std::vector<HostAddress>& present) {
  std::vector<HostAddress> chosen;
  for (const bool with_bridges : {false, true}) {
    for (const HostAddress& a : present) {
      if (!a.loopback && (with_bridges || !is_bridge(a.interface))) chosen.push_back(a);
    }
    if (!chosen.empty()) break;
  }
  return chosen;
}

}  // namespace

std::vector<HostAddress> list_addresses() {
  std::vector<HostAddress> result;
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return result;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, &freeifaddrs);
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
      inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    } else {
      continue;
    }
    result.push_back({entry->ifa_name, text, (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return result;
}

Result<std::vector<std::string>> select_addresses(const std::vector<HostAddress>& present,
                                                  std::string_view selector,
                                                  std::string_view host) {
  std::vector<HostAddress> chosen;
  const bool exclude = selector.starts_with('^');
  if (selector.empty() || exclude) chosen = default_choice(present);
  if (!selector.empty()) {
    for (const std::string_view item : split_commas(exclude ? selector.substr(1) : selector)) {
      const std::vector<HostAddress> matches = match_item(present, item);
      // What an exclusion names may well be missing: it is written once for all hosts.
      if (matches.empty() && !exclude) {
        return invalid_argument("--network-interfaces '" + std::string(selector) + "': '" +
                                std::string(item) + "' matches nothing on " + std::string(host) +
                                ", which has " + describe(present));
      }
      for (const HostAddress& match : matches) {
        const auto same = std::find(chosen.begin(), chosen.end(), match);
        if (exclude && same != chosen.end()) chosen.erase(same);
        if (!exclude && same == chosen.end()) chosen.push_back(match);
      }
    }
  }
  if (chosen.empty()) {
    return invalid_argument("host " + std::string(host) +
                            " has no address that other hosts could reach (it has " +
                            describe(present) +
                            "); bring up an interface, or choose one with "
                            "--network-interfaces");
  }
  std::vector<std::string> addresses;
  for (const HostAddress& a : chosen) addresses.push_back(a.address);
  return addresses;
}

}  // namespace kolo::internal
