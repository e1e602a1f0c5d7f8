#include "transport/net/socket.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>

namespace kolo::internal {
namespace {

using boost::system::error_code;

error_code last_error() { return {errno, boost::system::system_category()}; }

// Small messages leave at once: kolo gathers what belongs together itself.
void set_no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

error_code adopt(UniqueFd fd, const tcp& protocol, tcp::socket& socket) {
  set_no_delay(fd.get());
  error_code error;
  socket.assign(protocol, fd.get(), error);
  if (error) return error;
  (void)fd.release();  // the socket's now
  socket.non_blocking(true, error);
  return error;
}

}  // namespace

std::string to_text(const tcp::endpoint& endpoint) {
  return to_text(HostPort{endpoint.address().to_string(), endpoint.port()});
}

Result<Listening> listen_at(const HostPort& address) {
  error_code error;
  const auto ip = asio::ip::make_address(address.host, error);
  if (error) {
    return invalid_argument("cannot listen on \"" + address.host +
                            "\": not a numeric address; name one of this host's addresses");
  }
  Listening made{{}, tcp::endpoint(ip, address.port)};
  made.fd.reset(
      ::socket(made.endpoint.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.fd.is_open()) {
    return resource_error(std::string("cannot open a socket: ") + std::strerror(errno) +
                          "; raise the limit of open files (ulimit -n)");
  }
  const int on = 1;  // a fixed port is free again at once after the last job's end
  ::setsockopt(made.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  socklen_t bytes = static_cast<socklen_t>(made.endpoint.size());
  if (::bind(made.fd.get(), made.endpoint.data(), bytes) != 0 ||
      ::listen(made.fd.get(), SOMAXCONN) != 0) {
    const int why = errno;
    std::string text = "cannot listen on " + to_text(made.endpoint) + ": " + std::strerror(why);
    if (why == EADDRINUSE) return resource_error(text + "; choose another port, or 0 for any");
    if (why == ENOMEM || why == ENOBUFS) return resource_error(text + "; free some, or add some");
    return invalid_argument(text + "; name one of this host's addresses");
  }
  tcp::endpoint bound;
  bytes = static_cast<socklen_t>(bound.capacity());
  ::getsockname(made.fd.get(), bound.data(), &bytes);
  bound.resize(bytes);
  made.endpoint = bound;
  return made;
}

error_code open_socket(tcp::socket& socket, const tcp& protocol) {
  UniqueFd fd(::socket(protocol.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return last_error();
  return adopt(std::move(fd), protocol, socket);
}

error_code accept_socket(int listening, const tcp& protocol, tcp::socket& socket) {
  UniqueFd fd(::accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.is_open()) return last_error();
  return adopt(std::move(fd), protocol, socket);
}

Status check_timers(asio::io_context& io) {
  asio::steady_timer timer(io, std::chrono::steady_clock::now());
  bool went_off = false;
  timer.async_wait([&went_off](const error_code& error) { went_off = !error; });
  io.run_for(std::chrono::milliseconds(300));
  if (!went_off) io.poll();  // this thread may not have run in all that time
  timer.cancel();
  io.poll();
  io.restart();
  if (went_off) return Status::ok();
  return resource_error(
      "the system gives no timers (epoll_ctl, timerfd); raise the limit of open files (ulimit -n) "
      "or fs.epoll.max_user_watches");
}

Result<std::vector<tcp::endpoint>> resolve(const std::string& address) {
  Result<HostPort> parsed = parse_host_port(address);
  if (!parsed) return parsed.status();
  error_code error;
  const auto ip = asio::ip::make_address(parsed->host, error);
  if (!error) return std::vector{tcp::endpoint(ip, parsed->port)};
  asio::io_context io;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(parsed->host, std::to_string(parsed->port), error);
  if (error || found.empty()) {
    return invalid_argument("cannot find the host \"" + parsed->host + "\" of address " + address +
                            ": " + error.message());
  }
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  return endpoints;
}

}  // namespace kolo::internal
