// Which addresses of a host its ranks listen on. select_addresses() is pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transport/rendezvous/agent_codec.h"

namespace kolo::internal {

// The addresses of this host's interfaces that are up; link-local IPv6 left out, which means
// nothing without an interface's name. Loopback is marked.
std::vector<HostAddress> list_addresses();

// `selector` as --network-interfaces takes it: names ("eth0"; a name that matches none as a whole
// may be a prefix), "^name,..." for all but those, addresses, and networks ("10.1.0.0/16").
// Empty: everything but loopback, and without container bridges where others are left. Loopback
// is taken only where named. Errors name the selector, `host` and what is there.
Result<std::vector<std::string>> select_addresses(const std::vector<HostAddress>& present,
                                                  std::string_view selector, std::string_view host);

}  // namespace kolo::internal
