#include "ops/pair_exchange.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kolo::internal {

void PairExchange::reset(const Communicator& communicator) {
  begin(communicator);
  peers_.assign(static_cast<std::size_t>(size()), {});
}

void PairExchange::set_receives(void* output, std::span<const std::size_t> bytes) {
  KOLO_CHECK(bytes.size() == peers_.size());
  auto* at = static_cast<std::byte*>(output);
  for (std::size_t r = 0; r < bytes.size(); ++r) {
    peers_[r].from = {at, bytes[r]};
    if (bytes[r] > 0) at += bytes[r];
  }
}

void PairExchange::start(const Communicator& communicator, const void* input, void* output,
                         std::span<const std::size_t> bytes) {
  reset(communicator);
  set_receives(output, bytes);
  const std::size_t own = bytes[static_cast<std::size_t>(rank())];
  for (Peer& peer : peers_) {
    peer.to = {static_cast<std::byte*>(const_cast<void*>(input)), own};
  }
  post_all();
}

void PairExchange::start(const Communicator& communicator, const void* input, void* output,
                         std::span<const std::size_t> send_bytes,
                         std::span<const std::size_t> receive_bytes) {
  reset(communicator);
  set_receives(output, receive_bytes);
  KOLO_CHECK(send_bytes.size() == peers_.size());
  auto* at = static_cast<std::byte*>(const_cast<void*>(input));
  for (std::size_t r = 0; r < send_bytes.size(); ++r) {
    peers_[r].to = {at, send_bytes[r]};
    if (send_bytes[r] > 0) at += send_bytes[r];
  }
  post_all();
}

void PairExchange::post_all() {
  const Peer& own = peers_[static_cast<std::size_t>(rank())];
  KOLO_CHECK(own.to.bytes == own.from.bytes);
  copied_bytes_ = own.to.data == own.from.data ? own.to.bytes : 0;
  for (int i = 1; i < size(); ++i) {
    // Each rank begins with another peer, so that nobody is met by all at once.
    const int from = (rank() + size() - i) % size();
    Peer& peer = peers_[static_cast<std::size_t>(from)];
    post_receive(from, peer.receive, 0, 0, peer.from.data, peer.from.bytes);
  }
  for (int i = 1; i < size(); ++i) {
    const int to = (rank() + i) % size();
    Peer& peer = peers_[static_cast<std::size_t>(to)];
    post_send(to, peer.send, 0, 0, peer.to.data, peer.to.bytes);
  }
}

bool PairExchange::step() {
  const Peer& own = peers_[static_cast<std::size_t>(rank())];
  const std::size_t copy = std::min(own.to.bytes - copied_bytes_, kCopyStepBytes);
  if (copy > 0) std::memcpy(own.from.data + copied_bytes_, own.to.data + copied_bytes_, copy);
  copied_bytes_ += copy;
  if (copied_bytes_ == own.to.bytes &&
      std::all_of(peers_.begin(), peers_.end(),
                  [](const Peer& peer) { return peer.send.done && peer.receive.done; })) {
    complete();
  }
  return copy > 0;
}

}  // namespace kolo::internal
