// Sockets as kolo makes them: close-on-exec from birth and non-blocking (Boost.Asio alone does not
// set close-on-exec, and a child of the trainer must not keep a rank's connections alive).
// Included by the few files that do control-plane input and output.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/net/address.h"

namespace kolo::internal {

namespace asio = boost::asio;
using tcp = boost::asio::ip::tcp;

struct Listening {
  UniqueFd fd;
  tcp::endpoint endpoint;  // with the port that the system picked
};

// Bound and listening at a numeric address (port 0: any). INVALID_ARGUMENT: no such address here;
// RESOURCE: the port is in use, or descriptors have run out.
Result<Listening> listen_at(const HostPort& address);

// An unconnected socket put into `socket`; errno's error otherwise.
boost::system::error_code open_socket(tcp::socket& socket, const tcp& protocol);

// The next waiting connection of `listening`, or why there is none (would_block: none now).
boost::system::error_code accept_socket(int listening, const tcp& protocol, tcp::socket& socket);

// Numeric addresses are taken as they are; names are looked up (may block for long).
Result<std::vector<tcp::endpoint>> resolve(const std::string& address);

[[nodiscard]] std::string to_text(const tcp::endpoint& endpoint);

// Whether timers of this io_context, which is new, go off: Asio does not say when the system has
// refused it what for. RESOURCE.
Status check_timers(asio::io_context& io);

}  // namespace kolo::internal
