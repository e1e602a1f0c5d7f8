// FrameReader: cuts the byte stream between kolorun and an agent into frames: four bytes of length,
// least first, then the body. Pure; memory is bounded by the largest frame, and wiped.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/rendezvous/agent_codec.h"

namespace kolo::internal {

// `body` with its length before it.
std::string make_frame(std::string_view body);

class FrameReader {
 public:
  // What may come before the greeting: the message of the day of a remote shell.
  static constexpr std::size_t kMaxNoiseBytes = std::size_t{64} << 10;

  // With a greeting, everything before and including its first occurrence is skipped.
  explicit FrameReader(std::string_view greeting = {}) : greeting_(greeting) {}
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;
  ~FrameReader() { wipe(buffer_); }

  void feed(std::string_view bytes);
  // The next whole frame, nothing yet, or an error after which the stream is useless.
  Result<std::optional<std::string>> next();
  // Whether the greeting has been seen.
  [[nodiscard]] bool greeted() const { return greeting_.empty(); }
  // Bytes that are not part of a frame handed out yet.
  [[nodiscard]] std::string_view rest() const {
    return std::string_view(buffer_).substr(position_);
  }

 private:
  Status skip_noise();
  std::string greeting_;
  std::string buffer_;
  std::size_t position_ = 0;
};

}  // namespace kolo::internal
