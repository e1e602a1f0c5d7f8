// ControlLink: small authenticated frames between this rank and the ranks that it is linked to
// (its host's leader, or its members and the root). Order is kept per pair of ranks.
//
// One user at a time; nothing blocks. Frames are opaque bytes here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace kolo::internal {

struct ControlEvent {
  enum class Kind { kFrame, kClosed, kLost };  // kClosed: the peer called finish(); kLost: no word
  Kind kind = Kind::kFrame;
  int rank = -1;      // the peer
  std::string bytes;  // kFrame: the frame's body; kLost: what was seen, as text
};

// Bytes for one peer, ever.
struct ControlDelivery {
  std::uint64_t queued = 0;
  std::uint64_t confirmed = 0;  // of them: they have reached the peer's system
};

struct ControlCounters {
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_sent = 0;
};

class ControlLink {
 public:
  // A longer frame is refused by send() and ends the connection at a receiver.
  static constexpr std::size_t kMaxFrameBytes = std::size_t{64} << 20;

  ControlLink() = default;
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;
  virtual ~ControlLink() = default;

  // Queues a frame and tries to send it. Errors: RESOURCE when the frame or the queue is over its
  // bound; PEER_LOST when there is no link (any more).
  virtual Status send(int rank, std::string_view frame) = 0;
  // The next event, or nothing now. A lost or closed peer is reported exactly once.
  virtual std::optional<ControlEvent> poll() = 0;
  // Hands back an event that somebody else is to see: it comes with the next poll().
  virtual void put_back(ControlEvent event) = 0;
  // Sends what is queued, then says "no more from here" to every peer. poll() goes on working.
  virtual void finish() = 0;
  // Everything queued has been handed to the road, and every peer has ended too or is lost.
  [[nodiscard]] virtual bool finished() const = 0;
  // What has become of the frames to `rank`. A road that cannot lose any says that nothing is
  // missing. Costs a system call.
  [[nodiscard]] virtual ControlDelivery delivery(int /*rank*/) const { return {}; }
  [[nodiscard]] virtual const ControlCounters& counters() const = 0;
};

}  // namespace kolo::internal
