#include "transport/tcp/tcp_channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"

namespace kolo::internal {
namespace {

bool not_now(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  return address.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
}

// Where nothing can be congested, an algorithm that paces by its estimate of the path (BBR) only
// slows: measured with 64 MiB, a third of the time. Between hosts the system's choice stands.
void unpace_loopback(int fd) {
  sockaddr_storage peer{};
  socklen_t bytes = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) return;
  constexpr char kPlain[] = "reno";  // in every kernel, allowed to everyone
  if (is_loopback(peer)) ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kPlain, sizeof kPlain - 1);
}

}  // namespace

Result<std::unique_ptr<TcpChannel>> TcpChannel::create(UniqueFd fd, std::string peer,
                                                       Poller& poller, bool checksum) {
  unpace_loopback(fd.get());
  std::unique_ptr<TcpChannel> channel(
      new TcpChannel(std::move(fd), std::move(peer), poller, checksum));
  KOLO_RETURN_IF_ERROR(poller.add(channel->fd_.get()));
  return channel;
}

TcpChannel::~TcpChannel() { poller_->remove(fd_.get()); }

void TcpChannel::post_send(Transfer& send) {
  KOLO_CHECK(!outgoing_.finishing() && !incoming_.has_dropped(send.scope));
  send.done = false;
  outgoing_.post(send);
}

void TcpChannel::post_receive(Transfer& receive) {
  KOLO_CHECK(!incoming_.has_dropped(receive.scope));
  receive.done = false;
  incoming_.post(receive);
}

void TcpChannel::fail(Status status) {
  if (broken_.is_ok()) broken_ = std::move(status);
}

void TcpChannel::fail_lost(const char* how, int error) {
  // Who has taken leave is not lost, but takes nothing any more.
  std::string text = peer_;
  if (peer_finished()) {
    fail(aborted(text + " has finished and takes no more data"));
    return;
  }
  text += " is lost: its connection ";
  text += how;
  if (error != 0) {
    text += " (";
    text += std::strerror(error);
    text += ")";
  }
  text += " without taking leave; see the output of that rank for the cause";
  fail(peer_lost(std::move(text)));
}

Status TcpChannel::advance() {
  // Alternates, so that neither direction waits for the whole of the other.
  bool send = true;
  bool receive = true;
  while (broken_.is_ok() && (send || receive)) {
    if (send) send = send_some();
    if (receive && broken_.is_ok()) receive = receive_some();
  }
  if (broken_.is_ok() && peer_finished() && incoming_.expects()) {
    return aborted(peer_ + " has finished, but a message from it is awaited");
  }
  return broken_;
}

bool TcpChannel::send_some() {
  const std::span<iovec> parts = outgoing_.parts();
  if (parts.empty()) return false;
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) {
    if (errno == EINTR) return true;
    if (not_now(errno)) return false;
    if (peer_finished() && !outgoing_.has_messages()) {
      outgoing_.give_up_end();  // both have ended; that the peer was quicker is no error
    } else {
      fail_lost("broke", errno);
    }
    return false;
  }
  outgoing_.sent(static_cast<std::size_t>(n));
  return true;
}

bool TcpChannel::receive_some() {
  if (Status status = incoming_.take(); !status) fail(std::move(status));
  if (!broken_.is_ok() || peer_closed_ || incoming_.waits()) return false;
  std::array<iovec, 2> places;
  const std::size_t count = incoming_.places(places);
  const ssize_t n = ::readv(fd_.get(), places.data(), static_cast<int>(count));
  if (n <= 0) {
    if (n < 0 && errno == EINTR) return true;
    if (n < 0 && not_now(errno)) return false;
    peer_closed_ = true;
    const bool clean = peer_finished() && incoming_.at_boundary();
    if (!clean) fail_lost(n == 0 ? "was closed" : "broke", n == 0 ? 0 : errno);
    return false;
  }
  incoming_.arrived(static_cast<std::size_t>(n));
  // On to "not now", even after a short count: an end of the stream that came with these bytes
  // has no event of its own any more.
  return true;
}

void TcpChannel::cancel() {
  const bool sends_whole = outgoing_.cancel();
  const bool receives_whole = incoming_.cancel();
  if (sends_whole && receives_whole) return;
  fail(aborted("the connection to " + peer_ + " was given up in the middle of a message"));
}

void TcpChannel::drop(std::uint32_t scope) {
  incoming_.drop(scope);
  if (Status status = outgoing_.drop(scope); !status) fail(std::move(status));
}

void TcpChannel::finish() {
  outgoing_.finish();
  incoming_.finish();
}

bool TcpChannel::finished() const {
  if (!broken_.is_ok()) return true;
  return outgoing_.end_sent() && peer_finished();
}

}  // namespace kolo::internal
