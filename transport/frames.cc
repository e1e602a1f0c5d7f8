#include "transport/frames.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kKeptBytes = std::size_t{1} << 20;  // a rare huge frame is not kept for ever

Digest frame_code(Hmac& hmac, FrameDirection direction, const FrameHeader& header,
                  std::string_view body) {
  const auto* fields = reinterpret_cast<const std::byte*>(&header);
  const std::array<std::span<const std::byte>, 3> parts{
      std::as_bytes(std::span(&direction, 1)), std::span(fields, offsetof(FrameHeader, code)),
      bytes_of(body)};
  return hmac(parts);
}

Status bad_frame(const std::string& what) {
  return {StatusCode::kInternal, "bad control frame: " + what};
}

}  // namespace

void FrameSealer::seal(FrameKind kind, std::string_view body, std::string& out) {
  KOLO_CHECK(body.size() <= UINT32_MAX);
  FrameHeader header{
      static_cast<std::uint32_t>(body.size()), static_cast<std::uint32_t>(kind), counter_++, {}};
  const Digest code = frame_code(hmac_, direction_, header, body);
  std::copy_n(code.begin(), sizeof header.code, header.code);
  out.append(reinterpret_cast<const char*>(&header), sizeof header);
  out.append(body);
}

std::span<std::byte> FrameReader::space() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    if (buffer_.size() > kKeptBytes) std::string().swap(buffer_);
  }
  if (buffer_.size() - end_ < kReadBytes) {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (buffer_.size() - end_ < kReadBytes) {
      buffer_.resize(std::max(2 * buffer_.size(), end_ + kReadBytes));
    }
  }
  return std::as_writable_bytes(std::span(buffer_.data() + end_, buffer_.size() - end_));
}

Result<std::optional<FrameReader::Frame>> FrameReader::next() {
  if (broken_) return bad_frame("the stream is broken");
  if (end_ - begin_ < sizeof(FrameHeader)) return std::optional<Frame>{};
  FrameHeader header;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  broken_ = true;  // until proved otherwise
  if (header.bytes > max_bytes_) {
    return bad_frame(std::to_string(header.bytes) + " bytes, at most " +
                     std::to_string(max_bytes_) + " are allowed");
  }
  if (header.counter != counter_) return bad_frame("out of sequence");
  if (header.kind > static_cast<std::uint32_t>(FrameKind::kEnd)) return bad_frame("unknown kind");
  broken_ = false;
  if (end_ - begin_ < sizeof header + header.bytes) return std::optional<Frame>{};
  const std::string_view body(buffer_.data() + begin_ + sizeof header, header.bytes);
  const Digest code = frame_code(hmac_, direction_, header, body);
  if (!equal_in_constant_time(std::span(header.code), std::span(code).first(sizeof header.code))) {
    broken_ = true;
    return bad_frame("its code does not prove the session's key");
  }
  ++counter_;
  begin_ += sizeof header + header.bytes;
  return std::optional<Frame>{Frame{static_cast<FrameKind>(header.kind), body}};
}

}  // namespace kolo::internal
