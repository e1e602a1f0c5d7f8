// TcpChannel: a Channel over one connected, proved, non-blocking socket.
//
// The stream is that of transport/tcp/segment.h; Outgoing makes it, Incoming takes it apart, and
// this reads and writes.
//
// Cost: a message up to some KiB is one sendmsg and one readv; of a larger one, the payload goes
// straight from and into the memory posted. Nothing is allocated after construction.
// Threads: one user at a time, as for every Channel. Owns the socket; the poller outlives it.
#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "transport/channel.h"
#include "transport/poller.h"
#include "transport/tcp/incoming.h"
#include "transport/tcp/outgoing.h"

namespace kolo::internal {

class TcpChannel final : public Channel {
 public:
  // `peer` is how errors call the other side: "rank 3 (host b)". `fd` is added to the poller.
  // `checksum`, the same on both sides: damage to the data is found (PEER_LOST).
  static Result<std::unique_ptr<TcpChannel>> create(UniqueFd fd, std::string peer, Poller& poller,
                                                    bool checksum = false);
  ~TcpChannel() override;

  void post_send(Transfer& send) override;
  void post_receive(Transfer& receive) override;
  Status advance() override;
  void cancel() override;
  void drop(std::uint32_t scope) override;
  void finish() override;
  [[nodiscard]] bool finished() const override;
  [[nodiscard]] bool peer_finished() const override { return incoming_.peer_finished(); }
  [[nodiscard]] const ChannelCounters& counters() const override { return counters_; }

 private:
  TcpChannel(UniqueFd fd, std::string peer, Poller& poller, bool checksum)
      : fd_(std::move(fd)),
        peer_(std::move(peer)),
        poller_(&poller),
        outgoing_(counters_, checksum),
        incoming_(peer_, counters_, checksum) {}

  // Each returns whether there may be more to do at once.
  bool send_some();
  bool receive_some();
  void fail(Status status);
  void fail_lost(const char* how, int error);

  UniqueFd fd_;
  std::string peer_;
  Poller* poller_;
  Status broken_;
  ChannelCounters counters_;
  Outgoing outgoing_;
  Incoming incoming_;
  bool peer_closed_ = false;
};

}  // namespace kolo::internal
