#include "transport/tcp/tcp_control.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <utility>

#include "base/check.h"

namespace kolo::internal {
namespace {

constexpr const char* kNoLeave =
    " without taking leave (kolo_shutdown); see the output of that rank for the cause";
constexpr const char* kUnconfirmed =
    "it confirms nothing that is sent to it: cut off from the network, at least in one direction";

using boost::system::error_code;

constexpr std::size_t kCompactBytes = std::size_t{1} << 20;  // of a queue that never runs empty

FrameDirection opposite(FrameDirection direction) {
  return direction == FrameDirection::kFromConnector ? FrameDirection::kFromAcceptor
                                                     : FrameDirection::kFromConnector;
}

std::string why_broken(const error_code& error) {
  // The latter two: what the system knows better about why nothing is confirmed.
  if (error == asio::error::timed_out || error == asio::error::host_unreachable ||
      error == asio::error::network_unreachable) {
    return kUnconfirmed;
  }
  return "its connection broke (" + error.message() + ")" + kNoLeave;
}

bool not_now(const error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again;
}

}  // namespace

TcpControl::Peer::Peer(asio::io_context& io, int number, std::string label, const Digest& key,
                       FrameDirection outward)
    : rank(number),
      name(std::move(label)),
      socket(io),
      sealer(key, outward),
      reader(key, opposite(outward), kMaxFrameBytes) {}

TcpControl::~TcpControl() {
  for (const auto& peer : peers_) {
    if (peer->socket.is_open()) poller_->remove(peer->socket.native_handle());
  }
}

Status TcpControl::add(int rank, std::string name, UniqueFd fd, const Digest& session_key,
                       FrameDirection outward) {
  KOLO_CHECK(!by_rank_.contains(rank) && !finishing_);
  auto peer = std::make_unique<Peer>(io_, rank, std::move(name), session_key, outward);
  error_code error;
  peer->socket.assign(tcp::v4(), fd.get(), error);  // the family matters to connect() alone
  if (error) return resource_error("cannot take over a control connection: " + error.message());
  (void)fd.release();
  peer->socket.non_blocking(true, error);
  KOLO_RETURN_IF_ERROR(poller_->add(peer->socket.native_handle()));
  by_rank_.emplace(rank, peer.get());
  peers_.push_back(std::move(peer));
  return Status::ok();
}

void TcpControl::lose(Peer& peer, const std::string& why) {
  if (std::exchange(peer.lost, true)) return;
  poller_->remove(peer.socket.native_handle());
  error_code ignored;
  peer.socket.close(ignored);
  peer.queue.clear();
  peer.queue_begin = 0;
  if (!peer.ended) events_.push_back({ControlEvent::Kind::kLost, peer.rank, why});
}

Status TcpControl::send(int rank, std::string_view frame) {
  const auto found = by_rank_.find(rank);
  if (found == by_rank_.end()) {
    return peer_lost("there is no control link to rank " + std::to_string(rank));
  }
  Peer& peer = *found->second;
  if (peer.lost) return peer_lost("the control link to " + peer.name + " is lost");
  KOLO_CHECK(!finishing_);
  if (frame.size() > kMaxFrameBytes) {
    return resource_error("a control frame to " + peer.name + " has " +
                          std::to_string(frame.size()) + " bytes, at most " +
                          std::to_string(kMaxFrameBytes) + " are allowed");
  }
  if (peer.queue.size() - peer.queue_begin + frame.size() > kMaxQueueBytes) {
    return resource_error(peer.name + " does not take its control frames: over " +
                          std::to_string(kMaxQueueBytes) + " bytes wait for it");
  }
  const std::size_t before = peer.queue.size();
  seal(peer, FrameKind::kMessage, frame);
  ++counters_.frames_sent;
  counters_.bytes_sent += peer.queue.size() - before;
  if (before == 0) flush(peer);  // else the socket was full at the last attempt
  if (peer.lost) return peer_lost("the control link to " + peer.name + " is lost");
  return Status::ok();
}

void TcpControl::seal(Peer& peer, FrameKind kind, std::string_view frame) {
  const std::size_t before = peer.queue.size();
  peer.sealer.seal(kind, frame, peer.queue);
  peer.sealed_bytes += peer.queue.size() - before;
}

void TcpControl::flush(Peer& peer) {
  while (!peer.lost && peer.queue_begin < peer.queue.size()) {
    error_code error;
    const std::size_t sent = peer.socket.write_some(
        asio::buffer(peer.queue.data() + peer.queue_begin, peer.queue.size() - peer.queue_begin),
        error);
    if (not_now(error)) {
      if (peer.queue_begin < kCompactBytes) return;
      peer.queue.erase(0, std::exchange(peer.queue_begin, 0));
      return;
    }
    if (error == asio::error::interrupted) continue;
    if (error) return lose(peer, why_broken(error));
    peer.queue_begin += sent;
  }
  peer.queue.clear();
  peer.queue_begin = 0;
}

void TcpControl::receive(Peer& peer) {
  // On to "not now", however few bytes come: an end of the stream has no event of its own then.
  while (!peer.lost) {
    const auto space = peer.reader.space();
    error_code error;
    const std::size_t bytes =
        peer.socket.read_some(asio::buffer(space.data(), space.size()), error);
    if (not_now(error)) return;
    if (error == asio::error::interrupted) continue;
    if (error == asio::error::eof)
      return lose(peer, std::string("its connection ended") + kNoLeave);
    if (error) return lose(peer, why_broken(error));
    peer.reader.commit(bytes);
    take_frames(peer);
  }
}

void TcpControl::take_frames(Peer& peer) {
  while (true) {
    auto frame = peer.reader.next();
    if (!frame) return lose(peer, frame.status().text());
    if (!frame->has_value()) return;
    if (peer.ended) return lose(peer, "it sent a frame after its end");
    if ((*frame)->kind == FrameKind::kEnd) {
      peer.ended = true;
      events_.push_back({ControlEvent::Kind::kClosed, peer.rank, {}});
      continue;
    }
    ++counters_.frames_received;
    events_.push_back({ControlEvent::Kind::kFrame, peer.rank, std::string((*frame)->body)});
  }
}

std::optional<ControlEvent> TcpControl::poll() {
  if (events_.empty()) {
    for (const auto& peer : peers_) {
      flush(*peer);
      receive(*peer);
    }
  }
  if (events_.empty()) return std::nullopt;
  ControlEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void TcpControl::finish() {
  if (std::exchange(finishing_, true)) return;
  for (const auto& peer : peers_) {
    if (peer->lost) continue;
    seal(*peer, FrameKind::kEnd, {});
    flush(*peer);
  }
}

ControlDelivery TcpControl::delivery(int rank) const {
  const auto found = by_rank_.find(rank);
  if (found == by_rank_.end() || found->second->lost) return {};
  Peer& peer = *found->second;
  int in_socket = 0;  // not sent, or sent and not acknowledged
  if (::ioctl(peer.socket.native_handle(), SIOCOUTQ, &in_socket) != 0) return {};
  const std::size_t missing =
      peer.queue.size() - peer.queue_begin + static_cast<std::size_t>(in_socket);
  return {peer.sealed_bytes, peer.sealed_bytes - std::min(peer.sealed_bytes, missing)};
}

bool TcpControl::finished() const {
  if (!finishing_) return false;
  for (const auto& peer : peers_) {
    if (!peer->lost && (!peer->queue.empty() || !peer->ended)) return false;
  }
  return true;
}

}  // namespace kolo::internal
