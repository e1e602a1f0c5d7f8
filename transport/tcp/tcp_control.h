// TcpControl: the ControlLink over proved TCP connections, one per linked rank, with the session's
// code on every frame (frames.h). A small frame costs one send and one receive call.
//
// Threads: one user at a time. Owns the connections; the poller outlives it.
// Included where links are made (Boost.Asio inside).
#pragma once

#include <boost/asio/io_context.hpp>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/control_link.h"
#include "transport/frames.h"
#include "transport/net/socket.h"
#include "transport/poller.h"

namespace kolo::internal {

class TcpControl final : public ControlLink {
 public:
  // What may wait for one slow peer before send() says RESOURCE.
  static constexpr std::size_t kMaxQueueBytes = 2 * kMaxFrameBytes;

  explicit TcpControl(Poller& poller) : poller_(&poller) {}
  ~TcpControl() override;

  // `peer` is how errors call it: "rank 3 (host b)". `outward` is the direction of this side.
  Status add(int rank, std::string peer, UniqueFd fd, const Digest& session_key,
             FrameDirection outward);

  Status send(int rank, std::string_view frame) override;
  std::optional<ControlEvent> poll() override;
  void put_back(ControlEvent event) override { events_.push_front(std::move(event)); }
  void finish() override;
  [[nodiscard]] bool finished() const override;
  [[nodiscard]] ControlDelivery delivery(int rank) const override;
  [[nodiscard]] const ControlCounters& counters() const override { return counters_; }

 private:
  struct Peer {
    Peer(asio::io_context& io, int number, std::string label, const Digest& key,
         FrameDirection outward);
    int rank;
    std::string name;
    tcp::socket socket;
    FrameSealer sealer;
    FrameReader reader;
    std::string queue;  // sealed bytes that have not left
    std::size_t queue_begin = 0;
    std::uint64_t sealed_bytes = 0;  // ever
    bool ended = false;              // it has taken leave
    bool lost = false;
  };

  void seal(Peer& peer, FrameKind kind, std::string_view frame);
  void flush(Peer& peer);
  void receive(Peer& peer);
  void take_frames(Peer& peer);
  void lose(Peer& peer, const std::string& why);

  asio::io_context io_{1};  // only owns the sockets; never run
  Poller* poller_;
  std::vector<std::unique_ptr<Peer>> peers_;  // in the order added
  std::map<int, Peer*> by_rank_;
  std::deque<ControlEvent> events_;
  bool finishing_ = false;
  ControlCounters counters_;
};

}  // namespace kolo::internal
