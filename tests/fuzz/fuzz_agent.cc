// Any bytes as the stream between kolorun and an agent, either way, cut at any place: frames and
// messages end with values within their bounds or an error, the cut makes no difference, and what
// was decoded survives another trip. Joins go to kolorun's desk, too, which answers whom it knows.
// The first byte picks direction and cut.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/frame_reader.h"
#include "launcher/meeting_desk.h"
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

// What an agent relays, at the desk of a job of two ranks.
class Desk {
 public:
  void take(const FromAgent& message) {
    if (const auto* join = std::get_if<RelayJoin>(&message)) {
      connections_.push_back(join->connection);
      desk_.join(0, *join);
    } else if (const auto* left = std::get_if<RelayLeft>(&message)) {
      desk_.left(0, *left);
    } else if (const auto* harmed = std::get_if<RelayHarmed>(&message)) {
      desk_.harmed(0, *harmed);
    } else if (const auto* exited = std::get_if<RankExited>(&message)) {
      desk_.ended(exited->rank, "rank ended");
    }
  }

 private:
  void check(const DeliverAnswer& answer) const {
    if (std::ranges::count(connections_, answer.connection) == 0) std::abort();
  }
  boost::asio::io_context io_;
  std::vector<std::uint64_t> connections_;
  MeetingDesk desk_{io_, 2, std::chrono::seconds(60),
                    [this](std::size_t, const DeliverAnswer& answer) { check(answer); }};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool from_agent = data[0] % 2 == 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view greeting = from_agent ? kAgentGreeting : std::string_view{};
  const auto frames = cut_frames(stream, greeting, data[0] / 2 + 1u);
  if (frames != cut_frames(stream, greeting, size)) std::abort();
  Desk desk;
  for (const std::string& frame : frames) {
    if (from_agent) {
      const auto message = decode_from_agent(frame);
      if (!message) continue;
      desk.take(*message);
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
