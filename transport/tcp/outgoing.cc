#include "transport/tcp/outgoing.h"

#include <cstring>
#include <new>

namespace kolo::internal {

std::span<iovec> Outgoing::parts() {
  if (batch_empty()) fill();
  return {iovecs_.data() + begin_, end_ - begin_};
}

void Outgoing::add_header(const SegmentHeader& header, const Transfer* of) {
  SegmentHeader& own = headers_[headers_used_++];
  own = header;
  if (checksum_) own.header_sum = sum_of(own);
  parts_[end_] = {of, nullptr, &own};
  iovecs_[end_++] = {&own, sizeof own};
}

void Outgoing::fill() {
  clear();
  copies_.clear();
  if (abandoned_) add_header({.kind = SegmentKind::kAbandoned}, nullptr);
  abandoned_ = false;
  std::size_t total = 0;
  for (std::size_t messages = 0; !queue_.empty() && messages < kMessagesAtOnce; ++messages) {
    Transfer& send = *queue_.first;
    SegmentHeader header{
        .tag = send.tag, .bytes = send.bytes, .offset = offset_, .scope = send.scope};
    const std::size_t bytes = payload_bytes(header);
    if (messages > 0 && total + bytes > kSegmentBytes) return;
    total += bytes;
    if (checksum_ && bytes > 0) header.payload_sum = crc32c(0, send.data + offset_, bytes);
    add_header(header, &send);
    if (bytes > 0) {
      parts_[end_] = {&send, nullptr, nullptr};
      iovecs_[end_++] = {send.data + offset_, bytes};
    }
    offset_ += bytes;
    if (offset_ < send.bytes) return;
    parts_[end_ - 1].completes = &send;
    queue_.pop();
    offset_ = 0;
  }
  if (!finishing_ || end_batched_ || !queue_.empty()) return;
  add_header({.kind = SegmentKind::kEnd}, nullptr);
  end_batched_ = true;
}

void Outgoing::sent(std::size_t bytes) {
  for (; begin_ < end_; ++begin_) {
    iovec& part = iovecs_[begin_];
    if (bytes < part.iov_len) {
      part = {static_cast<std::byte*>(part.iov_base) + bytes, part.iov_len - bytes};
      return;
    }
    bytes -= part.iov_len;
    Transfer* complete = parts_[begin_].completes;
    if (complete == nullptr) continue;
    counters_->bytes_sent += complete->bytes;
    ++counters_->messages_sent;
    complete->done = true;  // from here on it is its owner's
  }
}

bool Outgoing::has_messages() const {
  if (!queue_.empty()) return true;
  for (std::size_t i = begin_; i < end_; ++i) {
    if (parts_[i].of != nullptr) return true;
  }
  return false;
}

void Outgoing::give_up_end() {
  clear();
  end_batched_ = true;
}

bool Outgoing::half_way() const {
  if (batch_empty()) return offset_ > 0;
  const SegmentHeader* first = parts_[begin_].header;
  const bool whole = first != nullptr && iovecs_[begin_].iov_len == sizeof *first;
  return !whole || first->offset > 0;
}

bool Outgoing::cancel() {
  if (half_way()) return false;
  for (std::size_t i = begin_; i < end_; ++i) {
    const SegmentHeader* header = parts_[i].header;
    if (header == nullptr) continue;
    if (header->kind == SegmentKind::kAbandoned) abandoned_ = true;
    if (header->kind == SegmentKind::kEnd) end_batched_ = false;
  }
  clear();
  queue_ = {};
  offset_ = 0;
  return true;
}

Status Outgoing::drop(std::uint32_t scope) {
  if (offset_ > 0 && queue_.first->scope == scope) {
    abandoned_ = true;
    offset_ = 0;
  }
  queue_.drop(scope);
  for (std::size_t i = begin_; i < end_; ++i) {
    Part& part = parts_[i];
    if (part.of == nullptr || part.of->scope != scope) continue;
    part.of = part.completes = nullptr;
    if (part.header != nullptr) continue;
    iovec& payload = iovecs_[i];
    std::unique_ptr<std::byte[]> copy(new (std::nothrow) std::byte[payload.iov_len]);
    if (copy == nullptr) {
      return resource_error("no memory to end a message of a process set that has failed: " +
                            std::to_string(payload.iov_len) + " bytes");
    }
    std::memcpy(copy.get(), payload.iov_base, payload.iov_len);
    payload.iov_base = copy.get();
    copies_.push_back(std::move(copy));
  }
  return Status::ok();
}

}  // namespace kolo::internal
