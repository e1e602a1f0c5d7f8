// Any bytes as the stream between kolorun and an agent, either way, cut at any place: frames and
// messages end with values within their bounds or an error, the cut makes no difference, and what
// was decoded survives another trip. The first byte picks direction and cut.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/frame_reader.h"
#include "transport/rendezvous/agent_codec.h"

using namespace kolo::internal;

namespace {

std::vector<std::string> cut_frames(std::string_view stream, std::string_view greeting,
                                    std::size_t piece_bytes) {
  FrameReader reader(greeting);
  std::vector<std::string> frames;
  for (std::size_t at = 0; at < stream.size(); at += piece_bytes) {
    reader.feed(stream.substr(at, piece_bytes));
    while (true) {
      auto frame = reader.next();
      if (!frame) return frames;
      if (!frame->has_value()) break;
      frames.push_back(**std::move(frame));
    }
  }
  return frames;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool from_agent = data[0] % 2 == 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view greeting = from_agent ? kAgentGreeting : std::string_view{};
  const auto frames = cut_frames(stream, greeting, data[0] / 2 + 1u);
  if (frames != cut_frames(stream, greeting, size)) std::abort();
  for (const std::string& frame : frames) {
    if (from_agent) {
      const auto message = decode_from_agent(frame);
      if (!message) continue;
      const auto back = decode_from_agent(encode(*message));
      if (!back || *back != *message) std::abort();
    } else {
      const auto message = decode_to_agent(frame);
      if (!message) continue;
      const auto back = decode_to_agent(encode(*message));
      if (!back || *back != *message) std::abort();
    }
  }
  return 0;
}
