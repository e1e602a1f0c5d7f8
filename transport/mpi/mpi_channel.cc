#include "transport/mpi/mpi_channel.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"

namespace kolo::internal {
namespace {

constexpr int kHeaderTag = 0;
constexpr int kPayloadTag = 1;
constexpr int kWordTag = 2;  // says something about the opposite direction

}  // namespace

// ---- Flow

MpiChannel::Piece& MpiChannel::Flow::next_piece() {
  Transfer* transfer = queue.first;
  Piece& piece = pieces[(first + count) % kWindow];
  ++count;
  piece.transfer = transfer;
  piece.bytes = std::min(kPieceBytes, transfer->bytes - offset);
  offset += piece.bytes;
  piece.last = offset == transfer->bytes;
  if (piece.last) {
    queue.pop();
    offset = 0;
  }
  return piece;
}

bool MpiChannel::Flow::has(std::uint32_t scope) const {
  for (std::size_t i = 0; i < count; ++i) {
    if (pieces[(first + i) % kWindow].transfer->scope == scope) return true;
  }
  for (const Transfer* at = queue.first; at != nullptr; at = at->next) {
    if (at->scope == scope) return true;
  }
  return false;
}

// ---- Life

MpiChannel::MpiChannel(std::shared_ptr<MpiWorld> world, const MpiAddress& address, std::string peer)
    : world_(std::move(world)), address_(address), peer_(std::move(peer)) {}

MpiChannel::~MpiChannel() {
  if (!world_->usable()) return;
  // A peer waits for the end of a channel that is broken on this side alone, too.
  if (!finished() || (memory_ != nullptr && !end_sent_)) {
    open();
    say(end_sent_ ? WordKind::kLeft : WordKind::kLost);
  }
  if (!finished() || !broken_.is_ok()) world_->forsake();
  settle_pieces();
  if (memory_ == nullptr) return;
  give_up(headers_in_, true);
  give_up(words_in_, true);
  give_up(headers_out_, false);
  give_up(words_out_, false);
}

// At the first use: a job of many ranks has many channels, and uses few of them.
void MpiChannel::open() {
  if (memory_ != nullptr) return;
  std::size_t total = 0;
  const auto lay_out = [&](auto& slots, std::size_t bytes) {
    slots.memory = total;
    slots.bytes = bytes;
    total += bytes * slots.slots.size();
  };
  lay_out(words_out_, sizeof(WordKind));
  lay_out(words_in_, sizeof(WordKind));
  lay_out(headers_out_, kSlotBytes);
  lay_out(headers_in_, kSlotBytes);
  memory_ = std::make_shared<std::byte[]>(total);
  for (std::size_t i = 0; i < headers_in_.slots.size(); ++i) listen(headers_in_, i, kHeaderTag);
  for (std::size_t i = 0; i < words_in_.slots.size(); ++i) listen(words_in_, i, kWordTag);
}

void MpiChannel::post_send(Transfer& send) {
  KOLO_CHECK(!finishing_ && !dropped_.contains(send.scope));
  send.done = false;
  sends_.push(send);
}

void MpiChannel::post_receive(Transfer& receive) {
  KOLO_CHECK(!dropped_.contains(receive.scope));
  receive.done = false;
  receives_.push(receive);
}

void MpiChannel::finish() { finishing_ = true; }

bool MpiChannel::finished() const {
  if (!broken_.is_ok()) return true;
  return end_sent_ && peer_finished_ &&
         std::none_of(headers_out_.slots.begin(), headers_out_.slots.end(),
                      [](const Slot& slot) { return slot.busy; });
}

Status MpiChannel::advance() {
  if (!broken_.is_ok()) return broken_;
  if (!world_->usable()) {
    fail(aborted("MPI_Finalize was called before kolo_shutdown: call them the other way round"));
    return broken_;
  }
  open();
  take_words();
  take_headers();
  fill_pieces();
  send_headers();
  send_pieces();
  say_waiting_words();
  note_ends();
  if (broken_.is_ok() && peer_finished_ && receives_.first != nullptr) {
    return aborted(peer_ + " took leave while this rank still expected data from it");
  }
  return broken_;
}

void MpiChannel::cancel() {
  sends_ = receives_ = {};
  if (!sending_.empty() || !filling_.empty()) give_up_pieces();
}

void MpiChannel::drop(std::uint32_t scope) {
  dropped_.add(scope);
  sends_.drop(scope);
  receives_.drop(scope);
  if (sending_.has(scope) || filling_.has(scope)) give_up_pieces();
}

// Pieces carry no name: who takes one out takes the channel down.
void MpiChannel::give_up_pieces() {
  if (world_->usable()) {
    if (broken_.is_ok()) say(WordKind::kBroken);
    settle_pieces();
  }
  sending_ = filling_ = {};
  fail(aborted("the channel to " + peer_ + " was cancelled in the middle of a message"));
}

void MpiChannel::fail(Status status) {
  if (broken_.is_ok()) broken_ = std::move(status);
}

bool MpiChannel::check(int error) {
  if (error == 0) return true;
  fail(peer_lost(peer_ + " is lost: MPI says: " + world_->words_of(error)));
  return false;
}

// ---- Slots

template <std::size_t kCount>
bool MpiChannel::is_free(Slots<kCount>& slots, std::size_t index) {
  Slot& slot = slots.slots[index];
  if (!slot.busy) return true;
  int done = 0;
  if (!check(world_->calls().test(&slot.request, &done, nullptr))) done = 1;
  slot.busy = done == 0;
  return !slot.busy;
}

template <std::size_t kCount>
void MpiChannel::listen(Slots<kCount>& slots, std::size_t index, int tag) {
  Slot& slot = slots.slots[index];
  slot.busy = check(world_->calls().irecv(world_->communicator(), memory_of(slots, index),
                                          static_cast<int>(slots.bytes), address_.peer,
                                          address_.receive_tag + tag, &slot.request));
}

// What MPI does not let go of at once goes to the world, with the memory.
template <std::size_t kCount>
void MpiChannel::give_up(Slots<kCount>& slots, bool cancel) {
  for (Slot& slot : slots.slots) {
    if (!slot.busy) continue;
    if (cancel) static_cast<void>(world_->calls().cancel(&slot.request));
    int done = 0;
    if (world_->calls().test(&slot.request, &done, nullptr) == 0 && done == 0) {
      world_->adopt(slot.request, memory_);
    }
    slot.busy = false;
  }
}

// ---- Words

void MpiChannel::say(WordKind word) {
  const std::size_t index = words_out_.next;
  if (!is_free(words_out_, index)) {
    if (word == WordKind::kGrant) ++grants_to_say_;
    return;  // of the others one is the last, said to a peer that has stopped listening
  }
  words_out_.next = (index + 1) % words_out_.slots.size();
  std::byte* memory = memory_of(words_out_, index);
  const std::uint64_t value =
      counters_.messages_sent << kKindBits | static_cast<std::uint64_t>(word);
  std::memcpy(memory, &value, sizeof value);
  Slot& slot = words_out_.slots[index];
  slot.busy =
      check(world_->calls().isend(world_->communicator(), memory, sizeof word, address_.peer,
                                  address_.send_tag + kWordTag, &slot.request));
}

void MpiChannel::say_waiting_words() {
  while (grants_to_say_ > 0 && broken_.is_ok() && is_free(words_out_, words_out_.next)) {
    --grants_to_say_;
    say(WordKind::kGrant);
  }
}

void MpiChannel::take_words() {
  while (broken_.is_ok() && !drop_next_) {
    const std::size_t index = words_in_.next;
    Slot& slot = words_in_.slots[index];
    int done = 0;
    int bytes = 0;
    if (!check(world_->calls().test(&slot.request, &done, &bytes))) slot.busy = false;
    if (done == 0) return;
    slot.busy = false;
    std::uint64_t word = 0;
    if (bytes == sizeof word) std::memcpy(&word, memory_of(words_in_, index), sizeof word);
    take_word(word);
    if (!broken_.is_ok()) return;
    listen(words_in_, index, kWordTag);
    words_in_.next = (index + 1) % words_in_.slots.size();
  }
}

void MpiChannel::take_word(std::uint64_t word) {
  const auto kind = static_cast<WordKind>(word & ((1U << kKindBits) - 1));
  if (kind == WordKind::kLost || kind == WordKind::kBroken) gone_after_ = word >> kKindBits;
  switch (kind) {
    case WordKind::kGrant: ++grants_; return;
    case WordKind::kDrop: drop_next_ = true; return;
    case WordKind::kLeft: peer_left_ = true; return;
    case WordKind::kLost:
      gone_ = peer_lost(peer_ + " closed its channel without taking leave");
      return;
    case WordKind::kBroken:
      // Of its own will: because somebody leaves or is lost, which comes by other ways and says
      // more, but perhaps later.
      gone_ = peer_lost(peer_ + " cancelled its channel in the middle of a message");
      gone_from_ = SteadyClock().now() + kBrokenGrace;
      return;
    case WordKind::kRefused:
      return fail(peer_lost(peer_ + " refused a message of another length than it expected"));
  }
  fail({StatusCode::kInternal, peer_ + " sent a word that is none"});
}

// ---- Receiving

void MpiChannel::take_headers() {
  while (broken_.is_ok() && !peer_finished_) {
    const std::size_t index = headers_in_.next;
    Slot& slot = headers_in_.slots[index];
    if (slot.busy) {
      int done = 0;
      int bytes = 0;
      if (!check(world_->calls().test(&slot.request, &done, &bytes))) slot.busy = false;
      if (done == 0) return;
      slot.busy = false;
      header_bytes_[index] = static_cast<std::size_t>(bytes);
    }
    if (!take_header(memory_of(headers_in_, index), header_bytes_[index])) return;
    listen(headers_in_, index, kHeaderTag);
    headers_in_.next = (index + 1) % headers_in_.slots.size();
  }
}

// False: it stays in front, or has broken the channel.
bool MpiChannel::take_header(const std::byte* message, std::size_t bytes) {
  Header header{};
  if (bytes >= sizeof header) std::memcpy(&header, message, sizeof header);
  const std::size_t inside = header.bytes <= kInlineBytes ? header.bytes : 0;
  if (bytes != sizeof header + inside ||
      (header.kind != HeaderKind::kMessage && header.kind != HeaderKind::kEnd)) {
    fail({StatusCode::kInternal, peer_ + " sent a message that is none of kolo's"});
    return false;
  }
  if (header.kind == HeaderKind::kMessage) return take_message(header, message + sizeof header);
  if (!filling_.empty()) return false;  // what came before is not complete
  peer_finished_ = true;
  return false;
}

bool MpiChannel::take_message(const Header& header, const std::byte* data) {
  Transfer* receive = receives_.take(header.scope, header.tag);
  if (receive == nullptr) {
    return (finishing_ || dropped_.contains(header.scope)) && drop_message(header);
  }
  if (receive->bytes != header.bytes) {
    refuse(header, *receive);
    return false;
  }
  if (header.bytes > kInlineBytes) {
    filling_.queue.push(*receive);
    return true;
  }
  if (header.bytes > 0) std::memcpy(receive->data, data, header.bytes);
  counters_.bytes_received += header.bytes;
  ++counters_.messages_received;
  receive->done = true;
  return true;
}

// After this end's leave, or of a scope that it has dropped. The word must not overtake the grants
// of what came before.
bool MpiChannel::drop_message(const Header& header) {
  if (header.bytes <= kInlineBytes) return true;
  if (!filling_.empty() || grants_to_say_ > 0 || !is_free(words_out_, words_out_.next)) {
    return false;
  }
  say(WordKind::kDrop);
  return true;
}

void MpiChannel::refuse(const Header& header, const Transfer& receive) {
  say(WordKind::kRefused);
  fail({StatusCode::kInternal, peer_ + " sent a message of " + std::to_string(header.bytes) +
                                   " bytes where " + std::to_string(receive.bytes) +
                                   " were expected"});
}

void MpiChannel::fill_pieces() {
  complete_pieces(filling_, [this](const Transfer& transfer) {
    counters_.bytes_received += transfer.bytes;
    ++counters_.messages_received;
  });
  while (broken_.is_ok() && filling_.queue.first != nullptr && filling_.has_room()) {
    const std::size_t offset = filling_.offset;
    Piece& piece = filling_.next_piece();
    if (!check(world_->calls().irecv(world_->communicator(), piece.transfer->data + offset,
                                     static_cast<int>(piece.bytes), address_.peer,
                                     address_.receive_tag + kPayloadTag, &piece.request))) {
      --filling_.count;
      return;
    }
    say(WordKind::kGrant);
  }
}

// ---- Sending

void MpiChannel::send_headers() {
  while (broken_.is_ok() && sends_.first != nullptr) {
    Transfer& send = *sends_.first;
    if (!send_header({HeaderKind::kMessage, send.scope, send.tag, send.bytes}, send.data)) return;
    sends_.pop();
    if (send.bytes > kInlineBytes) {
      sending_.queue.push(send);
      continue;
    }
    counters_.bytes_sent += send.bytes;
    ++counters_.messages_sent;
    send.done = true;
  }
}

// False: no slot is free, or the channel is broken.
bool MpiChannel::send_header(const Header& header, const std::byte* data) {
  const std::size_t index = headers_out_.next;
  if (!is_free(headers_out_, index) || !broken_.is_ok()) return false;
  std::byte* memory = memory_of(headers_out_, index);
  std::memcpy(memory, &header, sizeof header);
  const std::size_t inside = header.bytes <= kInlineBytes ? header.bytes : 0;
  if (inside > 0) std::memcpy(memory + sizeof header, data, inside);
  Slot& slot = headers_out_.slots[index];
  if (!check(world_->calls().isend(world_->communicator(), memory,
                                   static_cast<int>(sizeof header + inside), address_.peer,
                                   address_.send_tag + kHeaderTag, &slot.request))) {
    return false;
  }
  slot.busy = true;
  headers_out_.next = (index + 1) % headers_out_.slots.size();
  return true;
}

void MpiChannel::send_pieces() {
  complete_pieces(sending_, [this](const Transfer& transfer) {
    counters_.bytes_sent += transfer.bytes;
    ++counters_.messages_sent;
  });
  while (broken_.is_ok() && grants_ > 0 && sending_.queue.first != nullptr && sending_.has_room()) {
    const std::size_t offset = sending_.offset;
    Piece& piece = sending_.next_piece();
    --grants_;
    if (!check(world_->calls().isend(world_->communicator(), piece.transfer->data + offset,
                                     static_cast<int>(piece.bytes), address_.peer,
                                     address_.send_tag + kPayloadTag, &piece.request))) {
      --sending_.count;
      return;
    }
  }
  if (drop_next_ && grants_ == 0 && sending_.queue.first != nullptr && sending_.offset == 0) {
    sending_.queue.pop()->done = true;
    drop_next_ = false;
  }
}

template <typename Done>
void MpiChannel::complete_pieces(Flow& flow, const Done& done) {
  while (broken_.is_ok() && flow.count > 0) {
    Piece& piece = flow.pieces[flow.first];
    int ended = 0;
    int bytes = 0;
    const bool ok = check(world_->calls().test(&piece.request, &ended, &bytes));
    if (ok && ended == 0) return;
    flow.first = (flow.first + 1) % Flow::kWindow;
    --flow.count;
    if (!ok) return;
    if (!piece.last) continue;
    done(*piece.transfer);
    piece.transfer->done = true;
  }
}

// ---- The ends

void MpiChannel::note_ends() {
  if (finishing_ && !end_sent_ && sends_.first == nullptr && sending_.empty()) {
    end_sent_ = send_header({HeaderKind::kEnd, 0, 0, 0}, nullptr);
  }
  if (end_sent_) {
    for (std::size_t i = 0; i < headers_out_.slots.size(); ++i) is_free(headers_out_, i);
  }
  if (!gone_.is_ok()) {
    const bool expects_nothing = finishing_ && receives_.first == nullptr && filling_.empty();
    const bool has_all = counters_.messages_received >= gone_after_;
    if (expects_nothing || (has_all && SteadyClock().now() >= gone_from_)) fail(gone_);
  }
  if (peer_left_ && (sends_.first != nullptr || !sending_.empty())) {
    fail(aborted(peer_ + " has finished and takes no more data"));
  }
}

// Ends what is under way, by cancelling it where MPI can, and else by its completion.
void MpiChannel::settle_pieces() {
  const SteadyClock clock;
  const Nanos limit = clock.now() + kSettleTime;
  for (Flow* flow : {&filling_, &sending_}) {
    for (std::size_t i = 0; i < flow->count; ++i) {
      Piece& piece = flow->pieces[(flow->first + i) % Flow::kWindow];
      static_cast<void>(world_->calls().cancel(&piece.request));
    }
    for (; flow->count > 0; --flow->count, flow->first = (flow->first + 1) % Flow::kWindow) {
      Piece& piece = flow->pieces[flow->first];
      int done = 0;
      while (world_->calls().test(&piece.request, &done, nullptr) == 0 && done == 0) {
        if (clock.now() > limit) break;
        std::this_thread::yield();
      }
      if (done == 0) world_->adopt(piece.request, nullptr);
      if (done < 0 && flow == &filling_) receive_aside(piece.bytes);
    }
  }
}

// The peer may have sent this piece already: so that it gets rid of it, somebody takes it.
void MpiChannel::receive_aside(std::size_t bytes) {
  auto memory = std::make_shared<std::byte[]>(bytes);
  kolo_mpi_handle request{};
  if (world_->calls().irecv(world_->communicator(), memory.get(), static_cast<int>(bytes),
                            address_.peer, address_.receive_tag + kPayloadTag, &request) == 0) {
    world_->adopt(request, std::move(memory));
  }
}

}  // namespace kolo::internal
