// TcpChannel: a Channel over one connected, proved, non-blocking socket.
//
//   u64 tag | u64 bytes | payload         a message
//   u64 0   | u64 all ones                the clean end
//
// Cost: a message up to some KiB is one sendmsg and one readv; of a larger one, the payload goes
// straight from and into the memory posted. Nothing is allocated after construction.
// Threads: one user at a time, as for every Channel. Owns the socket; the poller outlives it.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "transport/channel.h"
#include "transport/poller.h"

namespace kolo::internal {

class TcpChannel final : public Channel {
 public:
  // `peer` is how errors call the other side: "rank 3 (host b)". `fd` is added to the poller.
  static Result<std::unique_ptr<TcpChannel>> create(UniqueFd fd, std::string peer, Poller& poller);
  ~TcpChannel() override;

  void post_send(Transfer& send) override;
  void post_receive(Transfer& receive) override;
  Status advance() override;
  void cancel() override;
  void finish() override;
  [[nodiscard]] bool finished() const override;
  [[nodiscard]] bool peer_finished() const override { return peer_finished_; }
  [[nodiscard]] const ChannelCounters& counters() const override { return counters_; }

 private:
  struct Header {
    std::uint64_t tag;
    std::uint64_t bytes;
  };
  struct Queue {
    Transfer* first = nullptr;
    Transfer* last = nullptr;
    void push(Transfer& transfer);
    Transfer* pop();
    Transfer* take(std::uint64_t tag);  // the first of that tag
  };
  static constexpr std::size_t kBufferBytes = 8192;
  static constexpr std::size_t kSendsAtOnce = 16;
  static constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;  // then the other direction

  TcpChannel(UniqueFd fd, std::string peer, Poller& poller)
      : fd_(std::move(fd)), peer_(std::move(peer)), poller_(&poller) {}

  // Each returns whether there may be more to do at once.
  bool send_some();
  void sent(std::size_t bytes);
  bool receive_some();
  bool read_socket();
  bool take_buffered();
  bool match_header();
  bool discard_buffered();
  void complete_receive();
  void fail(Status status);
  void fail_lost(const char* how, int error);

  UniqueFd fd_;
  std::string peer_;
  Poller* poller_;
  Status broken_;
  ChannelCounters counters_;

  Queue sends_;
  std::size_t first_sent_ = 0;  // bytes of the first send's header and payload that have left
  bool finishing_ = false;
  std::size_t end_sent_ = 0;  // bytes of the end marker that have left

  Queue receives_;
  bool have_header_ = false;
  Header header_{};              // of the message that is coming in
  Transfer* current_ = nullptr;  // where it goes
  std::size_t received_ = 0;     // of its payload
  bool peer_finished_ = false;
  bool peer_closed_ = false;
  std::size_t begin_ = 0;  // of what is buffered
  std::size_t end_ = 0;
  std::array<std::byte, kBufferBytes> buffer_;
};

}  // namespace kolo::internal
