// MpiChannel: the Channel contract over non-blocking point-to-point calls of MPI, polled only in
// advance() and, for a moment, in cancel().
//
// A direction is three ordered streams, each with an MPI tag of its own:
//   header   one message per transfer, in the order posted: {scope, tag, bytes} with the bytes
//   behind it
//            up to kInlineBytes (one copy at each end, one MPI message: the least latency);
//   payload  of longer transfers: pieces of at most kPieceBytes, straight from and into the posted
//            memory;
//   word     from the receiver back: a grant for each piece whose receive is posted, and "lost".
// So a piece is only sent into a posted receive: nothing long is ever buffered by MPI, and the
// receives of a transfer that nobody has sent can always be cancelled.
//
// Whose process has died is not seen here (MPI has no word for it) but by the control link.
// cancel(), drop() and the destructor end the pieces under way: a receive without a sender is
// cancelled, the rest is awaited for at most kSettleTime. After that only a peer that is frozen in
// the middle of a piece could still touch that piece, and only when it wakes up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "transport/channel.h"
#include "transport/mpi/mpi_world.h"
#include "transport/transfer_queue.h"

namespace kolo::internal {

struct MpiAddress {
  static constexpr int kTagsPerDirection = 3;
  int peer = 0;         // in MPI's world
  int send_tag = 0;     // the first of this end's direction
  int receive_tag = 0;  // the first of the peer's
};

class MpiChannel final : public Channel {
 public:
  static constexpr std::size_t kInlineBytes = 8192;
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  static constexpr Nanos kSettleTime = 2s;
  static constexpr Nanos kBrokenGrace = 500ms;

  // `peer`: for people.
  MpiChannel(std::shared_ptr<MpiWorld> world, const MpiAddress& address, std::string peer);
  ~MpiChannel() override;

  void post_send(Transfer& send) override;
  void post_receive(Transfer& receive) override;
  Status advance() override;
  void cancel() override;
  void drop(std::uint32_t scope) override;
  void finish() override;
  [[nodiscard]] bool finished() const override;
  [[nodiscard]] bool peer_finished() const override { return peer_finished_; }
  [[nodiscard]] const ChannelCounters& counters() const override { return counters_; }

 private:
  enum class HeaderKind : std::uint32_t { kMessage = 1, kEnd = 2 };
  struct Header {
    HeaderKind kind;
    std::uint32_t scope;
    std::uint64_t tag;
    std::uint64_t bytes;
  };
  enum class WordKind : std::uint64_t {
    kGrant = 1,    // the receive of the next piece is posted
    kDrop = 2,     // the next long transfer is not wanted: its receiver has left or dropped it
    kLost = 3,     // closed abruptly
    kBroken = 4,   // cancelled in the middle of a message
    kRefused = 5,  // a message of another length than expected
    kLeft = 6,     // closed after its end
  };
  // Words travel beside the messages and may overtake them: with the kind goes how many messages
  // this end has sent.
  static constexpr int kKindBits = 8;
  static constexpr std::size_t kSlotBytes = sizeof(Header) + kInlineBytes;
  // A small message of kolo's own memory, on its way.
  struct Slot {
    kolo_mpi_handle request{};
    bool busy = false;
  };
  template <std::size_t kCount>
  struct Slots {  // used in turn
    std::array<Slot, kCount> slots{};
    std::size_t next = 0;
    std::size_t memory = 0;  // offset of the first in memory_
    std::size_t bytes = 0;   // of each
  };
  // A piece of a posted transfer on its way.
  struct Piece {
    kolo_mpi_handle request{};
    Transfer* transfer = nullptr;
    bool last = false;  // of its transfer
    std::size_t bytes = 0;
  };
  // Long transfers of one direction, oldest first: pieces under way, then what is not yet posted.
  struct Flow {
    static constexpr std::size_t kWindow = 8;
    TransferQueue queue;
    std::size_t offset = 0;  // of the first in queue
    std::array<Piece, kWindow> pieces{};
    std::size_t first = 0;
    std::size_t count = 0;
    [[nodiscard]] bool empty() const { return queue.empty() && count == 0; }
    [[nodiscard]] bool has(std::uint32_t scope) const;
    // The next piece, taken out of the queue; only if has_room() and the queue is not empty.
    Piece& next_piece();
    [[nodiscard]] bool has_room() const { return count < kWindow; }
  };

  void open();
  bool check(int error);  // false: the channel is broken by it
  void fail(Status status);

  void take_words();
  void take_word(std::uint64_t word);
  void say(WordKind word);
  void say_waiting_words();
  void take_headers();
  bool take_header(const std::byte* message, std::size_t bytes);
  bool take_message(const Header& header, const std::byte* data);
  bool drop_message(const Header& header);
  void refuse(const Header& header, const Transfer& receive);
  void fill_pieces();
  void send_pieces();
  template <typename Done>
  void complete_pieces(Flow& flow, const Done& done);
  void send_headers();
  bool send_header(const Header& header, const std::byte* data);
  void note_ends();

  template <std::size_t kCount>
  bool is_free(Slots<kCount>& slots, std::size_t index);
  template <std::size_t kCount>
  std::byte* memory_of(const Slots<kCount>& slots, std::size_t index) const {
    return memory_.get() + slots.memory + index * slots.bytes;
  }
  template <std::size_t kCount>
  void listen(Slots<kCount>& slots, std::size_t index, int tag);
  template <std::size_t kCount>
  void give_up(Slots<kCount>& slots, bool cancel);
  void settle_pieces();
  void give_up_pieces();
  void receive_aside(std::size_t bytes);

  const std::shared_ptr<MpiWorld> world_;
  const MpiAddress address_;
  const std::string peer_;
  std::shared_ptr<std::byte[]> memory_;  // of all slots; from the first use on
  Slots<4> headers_out_;
  Slots<16> words_out_;
  Slots<2> headers_in_;
  Slots<2> words_in_;
  std::array<std::size_t, 2> header_bytes_{};  // of those that have arrived

  TransferQueue sends_;            // whose header has not left
  TransferQueue receives_;         // without a message so far
  Flow sending_;                   // long ones, header sent
  Flow filling_;                   // long ones, header seen
  std::size_t grants_ = 0;         // pieces that the peer has receives for
  std::size_t grants_to_say_ = 0;  // no slot was free for them
  bool drop_next_ = false;         // the peer drops the next long transfer
  bool finishing_ = false;
  bool end_sent_ = false;
  bool peer_finished_ = false;
  bool peer_left_ = false;
  DroppedScopes dropped_;
  Status gone_;                   // what the peer's last word said; it counts ...
  std::uint64_t gone_after_ = 0;  // ... when so many messages have arrived, ...
  Nanos gone_from_{};             // ... from then on
  Status broken_;
  ChannelCounters counters_;
};

}  // namespace kolo::internal
