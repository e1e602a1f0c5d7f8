// Incoming: the receiving half of a TcpChannel: finds the posted receive of each segment that comes
// in, and discards what was dropped. No I/O: the channel asks where bytes may go, reads, and says
// how many came.
//
// The payload of large messages is read straight into its place; headers and small messages pass
// a buffer, so that several come with one call.
// Threads: those of the channel. Owns no transfer.
#pragma once

#include <sys/uio.h>

#include <array>
#include <string>

#include "base/status.h"
#include "transport/tcp/segment.h"
#include "transport/transfer_queue.h"

namespace kolo::internal {

class Incoming {
 public:
  // `peer`: for people. `counters` outlives this.
  Incoming(std::string peer, ChannelCounters& counters, bool checksum)
      : peer_(std::move(peer)), counters_(&counters), checksum_(checksum) {}

  void post(Transfer& receive) { receives_.push(receive); }
  // Works on what has arrived, until more must be read or posted. Errors: INTERNAL, malformed;
  // PEER_LOST, damaged on its way.
  Status take();
  // Nothing more is read while a message waits for its receive.
  [[nodiscard]] bool waits() const { return have_header_ && current_ == nullptr && !discarding_; }
  // Where the next bytes go, in one call of readv(); the number of places.
  std::size_t places(std::array<iovec, 2>& out);
  // So many have come; call take() next.
  void arrived(std::size_t bytes);

  // From here on, what finds no receive is discarded.
  void finish() { finishing_ = true; }
  [[nodiscard]] bool peer_finished() const { return peer_finished_; }
  // A receive is posted.
  [[nodiscard]] bool expects() const { return current_ != nullptr || !receives_.empty(); }
  // All that came was taken, so the stream may end here.
  [[nodiscard]] bool at_boundary() const { return current_ == nullptr && begin_ == end_; }

  // Forgets all that is posted. False if a message was half-way: the stream cannot go on.
  bool cancel();
  void drop(std::uint32_t scope);  // Channel::drop()
  [[nodiscard]] bool has_dropped(std::uint32_t scope) const { return dropped_.contains(scope); }

 private:
  static constexpr std::size_t kBufferBytes = 8192;

  // Each returns whether there may be more to do.
  bool step();
  bool take_header();
  bool take_kind(const SegmentHeader& header);
  bool match();
  bool end_segment();
  bool malformed(const std::string& what);
  bool damaged(const std::string& what, std::uint32_t sum, std::uint32_t sent);
  [[nodiscard]] bool in_message() const { return current_ != nullptr || discarding_; }

  std::string peer_;
  ChannelCounters* counters_;
  bool checksum_;
  Status broken_;
  TransferQueue receives_;
  DroppedScopes dropped_;
  bool finishing_ = false;
  bool peer_finished_ = false;

  bool have_header_ = false;     // of a segment that is not yet complete
  SegmentHeader header_;         // the last one
  Transfer* current_ = nullptr;  // where its message goes
  bool discarding_ = false;      // nowhere
  std::uint64_t received_ = 0;   // of the message
  std::uint32_t sum_ = 0;        // of the segment's payload so far
  std::size_t begin_ = 0;        // of what is buffered
  std::size_t end_ = 0;
  std::size_t placed_bytes_ = 0;  // that the last places() had in front of the buffer
  std::array<std::byte, kBufferBytes> buffer_;
};

}  // namespace kolo::internal
