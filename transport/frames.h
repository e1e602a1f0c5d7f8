// Frames of a session: how control messages travel once both sides have proved themselves.
//
//   u32 bytes of the body | u32 kind | u64 counter | 16 bytes of HMAC-SHA256 | body
//
// The code covers the direction, the first three fields and the body, under the session's key; the
// counter starts at 0 and grows by one, so nothing can be altered, repeated, left out or swapped.
// Pure: bytes in, bytes out; one thread. Memory grows with bytes that have come, never with a
// length that was merely claimed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/crypto.h"

namespace kolo::internal {

enum class FrameKind : std::uint32_t { kMessage = 0, kEnd = 1 };

struct FrameHeader {
  std::uint32_t bytes;
  std::uint32_t kind;
  std::uint64_t counter;
  std::byte code[16];
};
static_assert(sizeof(FrameHeader) == 32);

// Which way a frame goes, so that none can be sent back to its sender.
enum class FrameDirection : std::uint32_t { kFromConnector = 1, kFromAcceptor = 2 };

class FrameSealer {
 public:
  FrameSealer(const Digest& session_key, FrameDirection direction)
      : hmac_(session_key), direction_(direction) {}
  // Appends header and body to `out`.
  void seal(FrameKind kind, std::string_view body, std::string& out);

 private:
  Hmac hmac_;
  FrameDirection direction_;
  std::uint64_t counter_ = 0;
};

class FrameReader {
 public:
  struct Frame {
    FrameKind kind = FrameKind::kMessage;
    std::string_view body;  // valid until the next call
  };

  FrameReader(const Digest& session_key, FrameDirection direction, std::size_t max_bytes)
      : hmac_(session_key), direction_(direction), max_bytes_(max_bytes) {}

  // Where the next bytes may be received; at least kReadBytes. Then commit() how many came.
  static constexpr std::size_t kReadBytes = std::size_t{16} << 10;
  [[nodiscard]] std::span<std::byte> space();
  void commit(std::size_t bytes) { end_ += bytes; }

  // The next whole frame, if there is one. An error (too long, wrong code, wrong counter, unknown
  // kind) is final.
  Result<std::optional<Frame>> next();

 private:
  Hmac hmac_;
  FrameDirection direction_;
  std::size_t max_bytes_;
  std::uint64_t counter_ = 0;
  std::string buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool broken_ = false;
};

}  // namespace kolo::internal
