#include "transport/tcp/tcp_channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace kolo::internal {
namespace {

constexpr std::uint64_t kEndBytes = UINT64_MAX;

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

// Cuts what has already left off the front of `parts`; the number of parts that remain.
std::size_t skip(iovec* parts, std::size_t count, std::size_t done) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t cut = std::min(done, parts[i].iov_len);
    done -= cut;
    if (cut == parts[i].iov_len) continue;
    parts[kept++] = {static_cast<std::byte*>(parts[i].iov_base) + cut, parts[i].iov_len - cut};
  }
  return kept;
}

}  // namespace

// ---- Queue

void TcpChannel::Queue::push(Transfer& transfer) {
  transfer.next = nullptr;
  (last != nullptr ? last->next : first) = &transfer;
  last = &transfer;
}

Transfer* TcpChannel::Queue::pop() {
  Transfer* out = first;
  first = out->next;
  if (first == nullptr) last = nullptr;
  return out;
}

Transfer* TcpChannel::Queue::take(std::uint64_t tag) {
  Transfer* before = nullptr;
  for (Transfer* at = first; at != nullptr; before = at, at = at->next) {
    if (at->tag != tag) continue;
    (before != nullptr ? before->next : first) = at->next;
    if (last == at) last = before;
    return at;
  }
  return nullptr;
}

// ---- TcpChannel

Result<std::unique_ptr<TcpChannel>> TcpChannel::create(UniqueFd fd, std::string peer,
                                                       Poller& poller) {
  unpace_loopback(fd.get());
  std::unique_ptr<TcpChannel> channel(new TcpChannel(std::move(fd), std::move(peer), poller));
  KOLO_RETURN_IF_ERROR(poller.add(channel->fd_.get()));
  return channel;
}

TcpChannel::~TcpChannel() { poller_->remove(fd_.get()); }

void TcpChannel::post_send(Transfer& send) {
  KOLO_CHECK(!finishing_ && send.bytes != kEndBytes);
  send.done = false;
  sends_.push(send);
}

void TcpChannel::post_receive(Transfer& receive) {
  receive.done = false;
  receives_.push(receive);
}

void TcpChannel::fail(Status status) {
  if (broken_.is_ok()) broken_ = std::move(status);
}

void TcpChannel::fail_lost(const char* how, int error) {
  // Who has taken leave is not lost, but takes nothing any more.
  std::string text = peer_;
  if (peer_finished_) {
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
  if (broken_.is_ok() && peer_finished_ && (receives_.first != nullptr || current_ != nullptr)) {
    fail(aborted(peer_ + " has finished, but a message from it is awaited"));
  }
  return broken_;
}

bool TcpChannel::send_some() {
  std::array<Header, kSendsAtOnce + 1> headers;
  std::array<iovec, 2 * kSendsAtOnce + 1> parts;
  std::size_t count = 0;
  std::size_t total = 0;
  std::size_t messages = 0;
  Transfer* at = sends_.first;
  for (; at != nullptr && messages < kSendsAtOnce && total < kBytesAtOnce; at = at->next) {
    headers[messages] = {at->tag, at->bytes};
    parts[count++] = {&headers[messages++], sizeof(Header)};
    if (at->bytes > 0) parts[count++] = {at->data, at->bytes};
    total += sizeof(Header) + at->bytes;
  }
  std::size_t done = first_sent_;
  if (at == nullptr && finishing_ && end_sent_ < sizeof(Header)) {
    headers[messages] = {0, kEndBytes};
    parts[count++] = {&headers[messages], sizeof(Header)};
    total += sizeof(Header);
    if (sends_.first == nullptr) done = end_sent_;
  }
  if (total == done) return false;
  count = skip(parts.data(), count, done);
  total -= done;
  // One call takes no more than kBytesAtOnce of a large message.
  if (total > kBytesAtOnce) {
    std::size_t room = kBytesAtOnce;
    total = 0;
    for (std::size_t i = 0; i < count; ++i) {
      parts[i].iov_len = std::min(parts[i].iov_len, room);
      room -= parts[i].iov_len;
      total += parts[i].iov_len;
    }
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) {
    if (errno == EINTR) return true;
    if (not_now(errno)) return false;
    if (peer_finished_ && sends_.first == nullptr) {
      end_sent_ = sizeof(Header);  // both have ended; that the peer was quicker is no error
    } else {
      fail_lost("broke", errno);
    }
    return false;
  }
  sent(static_cast<std::size_t>(n));
  // A short count means that the socket is full; its event comes when there is room again.
  return static_cast<std::size_t>(n) == total;
}

void TcpChannel::sent(std::size_t bytes) {
  while (sends_.first != nullptr) {
    const std::size_t whole = sizeof(Header) + sends_.first->bytes;
    const std::size_t step = std::min(bytes, whole - first_sent_);
    first_sent_ += step;
    bytes -= step;
    if (first_sent_ < whole) return;
    first_sent_ = 0;
    Transfer* complete = sends_.pop();
    counters_.bytes_sent += complete->bytes;
    ++counters_.messages_sent;
    complete->done = true;  // from here on it is its owner's
  }
  end_sent_ += bytes;
}

bool TcpChannel::receive_some() {
  while (broken_.is_ok() && take_buffered()) {
  }
  if (!broken_.is_ok() || peer_closed_) return false;
  // A message that waits for its receive holds up the stream.
  if (have_header_ && current_ == nullptr && !finishing_) return false;
  return read_socket();
}

// One step with what is buffered: a header, its match, or a piece of payload.
bool TcpChannel::take_buffered() {
  if (!have_header_) {
    if (end_ - begin_ < sizeof(Header)) return false;
    if (peer_finished_) {
      fail({StatusCode::kInternal, peer_ + " sent data after its end"});
      return false;
    }
    std::memcpy(&header_, buffer_.data() + begin_, sizeof(Header));
    begin_ += sizeof(Header);
    if (header_.bytes == kEndBytes) {
      peer_finished_ = true;
      return true;
    }
    have_header_ = true;
  }
  if (current_ == nullptr && !match_header()) return finishing_ && discard_buffered();
  const std::size_t n = std::min(end_ - begin_, current_->bytes - received_);
  if (n > 0) std::memcpy(current_->data + received_, buffer_.data() + begin_, n);
  begin_ += n;
  received_ += n;
  if (received_ < current_->bytes) return false;
  complete_receive();
  return true;
}

// Who has finished posts no receive any more: what the peer still sends goes nowhere.
bool TcpChannel::discard_buffered() {
  const std::size_t n = std::min<std::size_t>(end_ - begin_, header_.bytes - received_);
  begin_ += n;
  received_ += n;
  if (received_ < header_.bytes) return false;
  received_ = 0;
  have_header_ = false;
  return true;
}

bool TcpChannel::match_header() {
  Transfer* found = receives_.take(header_.tag);
  if (found == nullptr) return false;
  if (found->bytes != header_.bytes) {
    const std::size_t expected = found->bytes;
    receives_.push(*found);  // still posted: its owner cancels
    fail({StatusCode::kInternal, peer_ + " sent " + std::to_string(header_.bytes) +
                                     " bytes with tag " + std::to_string(header_.tag) + ", " +
                                     std::to_string(expected) + " were expected"});
    return false;
  }
  current_ = found;
  received_ = 0;
  return true;
}

void TcpChannel::complete_receive() {
  counters_.bytes_received += current_->bytes;
  ++counters_.messages_received;
  have_header_ = false;
  received_ = 0;
  std::exchange(current_, nullptr)->done = true;
}

// Reads the rest of a payload into its place and what follows it into the buffer, in one call.
bool TcpChannel::read_socket() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  std::array<iovec, 2> parts;
  std::size_t count = 0;
  std::size_t direct = 0;
  bool whole = true;
  if (current_ != nullptr) {  // the buffer is empty then
    const std::size_t rest = current_->bytes - received_;
    direct = std::min(rest, kBytesAtOnce);
    whole = direct == rest;
    parts[count++] = {current_->data + received_, direct};
  }
  if (whole) parts[count++] = {buffer_.data() + end_, kBufferBytes - end_};
  const ssize_t n = ::readv(fd_.get(), parts.data(), static_cast<int>(count));
  if (n <= 0) {
    if (n < 0 && errno == EINTR) return true;
    if (n < 0 && not_now(errno)) return false;
    peer_closed_ = true;
    const bool clean = peer_finished_ && current_ == nullptr && end_ == 0;
    if (!clean) fail_lost(n == 0 ? "was closed" : "broke", n == 0 ? 0 : errno);
    return false;
  }
  const std::size_t got = static_cast<std::size_t>(n);
  const std::size_t placed = std::min(got, direct);
  received_ += placed;
  end_ += got - placed;
  if (current_ != nullptr && received_ == current_->bytes) complete_receive();
  while (broken_.is_ok() && take_buffered()) {
  }
  // On to "not now", even after a short count: an end of the stream that came with these bytes
  // has no event of its own any more.
  return broken_.is_ok();
}

void TcpChannel::cancel() {
  const bool half_sent = first_sent_ > 0;
  const bool half_received = current_ != nullptr && received_ > 0;
  sends_ = {};
  receives_ = {};
  first_sent_ = 0;
  received_ = 0;
  current_ = nullptr;  // its header, if any, waits for another receive
  if (half_sent || half_received) {
    fail(aborted("the connection to " + peer_ + " was given up in the middle of a message"));
  }
}

void TcpChannel::finish() { finishing_ = true; }

bool TcpChannel::finished() const {
  if (!broken_.is_ok()) return true;
  return finishing_ && sends_.first == nullptr && end_sent_ == sizeof(Header) && peer_finished_;
}

}  // namespace kolo::internal
