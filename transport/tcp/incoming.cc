#include "transport/tcp/incoming.h"

#include <cstdio>
#include <cstring>
#include <utility>

namespace kolo::internal {

Status Incoming::take() {
  while (broken_.is_ok() && step()) {
  }
  return broken_;
}

bool Incoming::malformed(const std::string& what) {
  broken_ = {StatusCode::kInternal, peer_ + " sent " + what};
  return false;
}

bool Incoming::damaged(const std::string& what, std::uint32_t sum, std::uint32_t sent) {
  std::array<char, 64> sums;
  std::snprintf(sums.data(), sums.size(), "0x%08x here, 0x%08x was sent", sum, sent);
  broken_ = peer_lost(peer_ + " is cut off: " + what + " was damaged on its way (its checksum is " +
                      sums.data() +
                      "); look for a faulty network card, cable, switch or memory between the two");
  return false;
}

bool Incoming::step() {
  if (!have_header_ && !take_header()) return false;
  if (!have_header_) return true;  // it was a word by itself
  if (!in_message() && !match()) return false;
  const std::uint64_t rest = header_.offset + payload_bytes(header_) - received_;
  const std::size_t n = std::min<std::uint64_t>(end_ - begin_, rest);
  if (n > 0 && current_ != nullptr) {
    std::memcpy(current_->data + received_, buffer_.data() + begin_, n);
    if (checksum_) sum_ = crc32c(sum_, current_->data + received_, n);
  }
  begin_ += n;
  received_ += n;
  return n == rest && end_segment();
}

bool Incoming::take_header() {
  if (end_ - begin_ < sizeof(SegmentHeader)) return false;
  SegmentHeader header;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  begin_ += sizeof header;
  if (checksum_ && header.header_sum != sum_of(header)) {
    return damaged("a header", sum_of(header), header.header_sum);
  }
  if (peer_finished_) return malformed("data after its end");
  if (header.kind != SegmentKind::kMessage) return take_kind(header);
  const bool continues = header.tag == header_.tag && header.scope == header_.scope &&
                         header.bytes == header_.bytes && header.offset == received_ &&
                         received_ < header.bytes;
  if (in_message() ? !continues : header.offset != 0) {
    return malformed("a segment that does not continue its message");
  }
  header_ = header;
  have_header_ = true;
  sum_ = 0;
  return true;
}

bool Incoming::take_kind(const SegmentHeader& header) {
  if (header.kind == SegmentKind::kEnd && !in_message()) {
    peer_finished_ = true;
    return true;
  }
  if (header.kind != SegmentKind::kAbandoned || !in_message()) {
    return malformed("a segment that is none of kolo's");
  }
  if (current_ != nullptr) receives_.push_front(*std::exchange(current_, nullptr));
  discarding_ = false;
  received_ = 0;
  return true;
}

// False: the message waits for its receive, or has broken the stream.
bool Incoming::match() {
  received_ = 0;
  Transfer* found = receives_.take(header_.scope, header_.tag);
  if (found == nullptr) {
    discarding_ = finishing_ || dropped_.contains(header_.scope);
    return discarding_;
  }
  if (found->bytes != header_.bytes) {
    const std::size_t expected = found->bytes;
    receives_.push(*found);  // still posted: its owner cancels
    return malformed(std::to_string(header_.bytes) + " bytes with tag " +
                     std::to_string(header_.tag) + ", " + std::to_string(expected) +
                     " were expected");
  }
  current_ = found;
  return true;
}

bool Incoming::end_segment() {
  have_header_ = false;
  if (checksum_ && current_ != nullptr && sum_ != header_.payload_sum) {
    return damaged("the data from byte " + std::to_string(header_.offset) + " to " +
                       std::to_string(received_) + " of a message with tag " +
                       std::to_string(header_.tag) + " and " + std::to_string(header_.bytes) +
                       " bytes",
                   sum_, header_.payload_sum);
  }
  if (received_ < header_.bytes) return true;
  received_ = 0;
  if (std::exchange(discarding_, false)) return true;
  counters_->bytes_received += current_->bytes;
  ++counters_->messages_received;
  std::exchange(current_, nullptr)->done = true;
  return true;
}

// The rest of a payload goes into its place, and what follows it into the buffer.
std::size_t Incoming::places(std::array<iovec, 2>& out) {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  std::size_t count = 0;
  placed_bytes_ = 0;
  if (have_header_ && current_ != nullptr) {  // the buffer is empty then
    placed_bytes_ = header_.offset + payload_bytes(header_) - received_;
    out[count++] = {current_->data + received_, placed_bytes_};
  }
  out[count++] = {buffer_.data() + end_, kBufferBytes - end_};
  return count;
}

void Incoming::arrived(std::size_t bytes) {
  const std::size_t placed = std::min(bytes, placed_bytes_);
  if (checksum_ && placed > 0) sum_ = crc32c(sum_, current_->data + received_, placed);
  received_ += placed;
  end_ += bytes - placed;
}

bool Incoming::cancel() {
  const bool half_way = current_ != nullptr && received_ > 0;
  receives_ = {};
  current_ = nullptr;  // its header, if any, waits for another receive
  return !half_way;
}

void Incoming::drop(std::uint32_t scope) {
  dropped_.add(scope);
  receives_.drop(scope);
  if (current_ == nullptr || current_->scope != scope) return;
  current_ = nullptr;
  discarding_ = true;
}

}  // namespace kolo::internal
