#include "launcher/frame_reader.h"

#include <cstdint>

#include "base/check.h"
#include "transport/rendezvous/agent_codec.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kHeaderBytes = 4;
constexpr std::size_t kKeptBytes = std::size_t{1} << 20;  // a rare huge frame is not kept for ever

std::size_t length_at(std::string_view header) {
  std::size_t length = 0;
  for (std::size_t i = kHeaderBytes; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(header[i]);
  }
  return length;
}

}  // namespace

std::string make_frame(std::string_view body) {
  KOLO_CHECK(body.size() <= kMaxAgentFrameBytes);
  std::string frame;
  frame.reserve(kHeaderBytes + body.size());
  for (std::size_t i = 0; i < kHeaderBytes; ++i) {
    frame += static_cast<char>(body.size() >> (8 * i) & 0xff);
  }
  frame += body;
  return frame;
}

void FrameReader::feed(std::string_view bytes) {
  const std::size_t needed = buffer_.size() + bytes.size();
  if (needed > buffer_.capacity()) {  // growing by itself it would leave a copy behind
    std::string larger;
    larger.reserve(2 * needed);
    larger = buffer_;
    wipe(buffer_);
    buffer_.swap(larger);
  }
  buffer_ += bytes;
}

Status FrameReader::skip_noise() {
  const std::size_t found = buffer_.find(greeting_);
  if (found == std::string::npos) {
    if (buffer_.size() <= kMaxNoiseBytes) return Status::ok();
    return invalid_argument("something else than an agent of kolorun answers");
  }
  position_ = found + greeting_.size();
  greeting_.clear();
  return Status::ok();
}

Result<std::optional<std::string>> FrameReader::next() {
  using Frame = std::optional<std::string>;
  if (!greeting_.empty()) {
    KOLO_RETURN_IF_ERROR(skip_noise());
    if (!greeting_.empty()) return Frame();
  }
  const std::string_view ready = rest();
  const std::size_t length = ready.size() < kHeaderBytes ? 0 : length_at(ready);
  if (length > kMaxAgentFrameBytes) {
    return invalid_argument("an agent's frame of " + std::to_string(length) +
                            " bytes is over the limit");
  }
  if (ready.size() < kHeaderBytes || ready.size() < kHeaderBytes + length) {
    buffer_.erase(0, position_);  // only an unfinished frame is left to be moved
    position_ = 0;
    return Frame();
  }
  Frame frame(std::in_place, ready.substr(kHeaderBytes, length));
  position_ += kHeaderBytes + length;
  if (position_ == buffer_.size()) {
    wipe(buffer_);
    position_ = 0;
    if (buffer_.capacity() > kKeptBytes) std::string().swap(buffer_);
  }
  return frame;
}

}  // namespace kolo::internal
