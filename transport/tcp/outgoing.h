// Outgoing: the sending half of a TcpChannel: turns posted transfers into a stream of segments. No
// I/O: the channel asks for parts, writes them, and says how much has left.
//
// Works in batches of some small messages or one segment of a large one, so that small messages
// share a call. What is in a batch leaves, even if its scope is dropped meanwhile: then as a copy.
// Threads: those of the channel. Owns no transfer and no memory but such copies.
#pragma once

#include <sys/uio.h>

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "transport/tcp/segment.h"
#include "transport/transfer_queue.h"

namespace kolo::internal {

class Outgoing {
 public:
  // `counters` outlives this.
  Outgoing(ChannelCounters& counters, bool checksum) : counters_(&counters), checksum_(checksum) {}

  void post(Transfer& send) { queue_.push(send); }
  // What is to be written next, in order; empty when there is nothing.
  [[nodiscard]] std::span<iovec> parts();
  // So many bytes of it have left.
  void sent(std::size_t bytes);

  void finish() { finishing_ = true; }
  [[nodiscard]] bool finishing() const { return finishing_; }
  [[nodiscard]] bool end_sent() const { return end_batched_ && batch_empty(); }
  // No message is left, only the word that none is.
  [[nodiscard]] bool has_messages() const;
  // The peer takes nothing any more.
  void give_up_end();

  // Forgets all that is posted. False if a message was half-way: the stream cannot go on.
  bool cancel();
  // Channel::drop(). Error: RESOURCE, when there is no memory for the copy: the stream cannot go
  // on.
  Status drop(std::uint32_t scope);

 private:
  static constexpr std::size_t kMessagesAtOnce = 16;
  static constexpr std::size_t kHeaders = kMessagesAtOnce + 2;  // with kAbandoned and kEnd

  struct Part {
    const Transfer* of = nullptr;  // null: dropped, or nobody's
    Transfer* completes = nullptr;
    const SegmentHeader* header = nullptr;  // this part is it; null: payload
  };

  void fill();
  void add_header(const SegmentHeader& header, const Transfer* of);
  void clear() { begin_ = end_ = headers_used_ = 0; }
  [[nodiscard]] bool batch_empty() const { return begin_ == end_; }
  [[nodiscard]] bool half_way() const;

  ChannelCounters* counters_;
  bool checksum_;
  TransferQueue queue_;     // not yet wholly in a batch
  std::size_t offset_ = 0;  // of the first: what batches have taken
  bool abandoned_ = false;  // the peer must be told that the message that has begun ends here
  bool finishing_ = false;
  bool end_batched_ = false;

  // The batch: parts from begin_ to end_ are still to leave.
  std::array<SegmentHeader, kHeaders> headers_;
  std::array<iovec, 2 * kHeaders> iovecs_;
  std::array<Part, 2 * kHeaders> parts_;
  std::size_t headers_used_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace kolo::internal
