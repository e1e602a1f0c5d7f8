// Channel: an ordered, reliable stream of messages between this rank and one peer.
//
// Protocol of use
//   * The poster owns every Transfer and its bytes; both stay valid and still until `done` is set
//     or cancel() has returned. Posting allocates nothing.
//   * Sends leave in the order posted. A message's receiver is found by its scope and tag: the
//     receive posted first among those with both. A message that finds no posted receive holds up
//     the stream until one is posted, so a receive must never wait for a later message of its
//     stream; unless its scope was dropped here: then it is discarded.
//   * Both sides must name the same number of bytes; another number breaks the channel (internal).
//   * A channel has one user at a time; nothing here is thread-safe, and nothing blocks.
//   * After the first error the channel is broken: every later advance() returns the same Status.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace kolo::internal {

struct Transfer {
  std::uint64_t tag = 0;
  std::byte* data = nullptr;  // a send only reads it; may be null when bytes is 0
  std::size_t bytes = 0;
  std::uint32_t scope = 0;  // the process set it belongs to, which can be dropped; 0: the world
  bool done = false;
  Transfer* next = nullptr;  // the channel's, while posted
};

// Counted where bytes enter and leave the road; never reset.
struct ChannelCounters {
  std::uint64_t bytes_sent = 0;  // payload only
  std::uint64_t bytes_received = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
};

class Channel {
 public:
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  virtual ~Channel() = default;  // closes abruptly: the peer sees a lost channel, unless finish()

  virtual void post_send(Transfer& send) = 0;
  virtual void post_receive(Transfer& receive) = 0;

  // Moves what can be moved now, in both directions, and sets `done` flags. Returns the error that
  // broke the channel: PEER_LOST when the peer vanished, ABORTED when it takes no more data,
  // INTERNAL for a malformed stream. ABORTED also while receives are posted here although the peer
  // has finished the stream: that breaks nothing, and passes when they are dropped, so that this
  // side, too, can say that it has finished.
  virtual Status advance() = 0;

  // Forgets every posted transfer; their memory is not touched afterwards. Breaks the channel if
  // any was half-way.
  virtual void cancel() = 0;

  // Ends one scope on this side, for ever, while the others go on undisturbed: forgets its posted
  // transfers (their memory is not touched afterwards), sends none of it any more, and discards
  // what still arrives of it. Nothing of the scope is posted after this. The peer gets whole
  // messages or none, and its receives stay posted until it drops the scope too, at whatever time.
  // Call advance() afterwards: what waited behind may move. Over MPI, which cannot take back what
  // has begun, the channel breaks if a long message of the scope was half-way in either direction.
  virtual void drop(std::uint32_t scope) = 0;

  // Says "no more from here" behind everything posted, so that the peer can tell a clean end from
  // a loss. Nothing is posted after it; what the peer still sends is dropped. Call advance() until
  // finished() to have it delivered.
  virtual void finish() = 0;
  // This side has delivered its end and the peer's end has arrived (or the channel is broken).
  [[nodiscard]] virtual bool finished() const = 0;
  // The peer's clean end has arrived.
  [[nodiscard]] virtual bool peer_finished() const = 0;

  [[nodiscard]] virtual const ChannelCounters& counters() const = 0;
};

}  // namespace kolo::internal
