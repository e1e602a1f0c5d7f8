// Any bytes as what comes in on a data connection, from a peer that has proved the secret: ends
// with the receives that fit, or an error that stays; memory that was not posted, or is posted no
// longer, is not touched.
//
// The first byte picks checksums, what is dropped, and how the rest is read: as the stream itself,
// or as segments (six small numbers and a payload) that get right sums, as an evil peer would make
// them. The second is how much comes at a time.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/tcp/incoming.h"

using namespace kolo::internal;

namespace {

// A posted receive, in memory of exactly its size.
struct Receive {
  Receive(std::uint64_t tag, std::size_t bytes, std::uint32_t scope)
      : memory(std::make_unique<std::byte[]>(bytes)) {
    transfer.tag = tag;
    transfer.data = memory.get();
    transfer.bytes = bytes;
    transfer.scope = scope;
  }
  std::unique_ptr<std::byte[]> memory;
  Transfer transfer;
};

std::string segments_of(std::string_view input, bool checksum) {
  std::string stream;
  while (input.size() >= 6) {
    const auto number = [&](std::size_t i) { return static_cast<std::uint8_t>(input[i]); };
    SegmentHeader header;
    header.kind = static_cast<SegmentKind>(number(0) % 5);
    header.tag = number(1) % 4;
    header.scope = number(2) % 3;
    header.bytes = std::uint64_t{number(3)} << (number(0) / 8);
    header.offset = std::uint64_t{number(4)} << (number(0) / 8);
    const std::size_t payload = std::min<std::size_t>(number(5), input.size() - 6);
    if (checksum) header.payload_sum = crc32c(0, input.data() + 6, payload);
    if (checksum) header.header_sum = sum_of(header);
    stream.append(reinterpret_cast<const char*>(&header), sizeof header);
    stream.append(input.substr(6, payload));
    input.remove_prefix(6 + payload);
  }
  return stream;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const bool checksum = (data[0] & 1) != 0;
  const bool drops = (data[0] & 2) != 0;
  const bool cancels = (data[0] & 4) != 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string stream = (data[0] & 8) != 0 ? segments_of(rest, checksum) : std::string(rest);
  const std::size_t at_once = data[1] * std::size_t{8} + 1;

  ChannelCounters counters;
  Incoming incoming("peer", counters, checksum);
  std::vector<std::unique_ptr<Receive>> receives;
  const auto post = [&](std::uint64_t tag, std::size_t bytes, std::uint32_t scope) {
    receives.push_back(std::make_unique<Receive>(tag, bytes, scope));
    incoming.post(receives.back()->transfer);
  };
  post(1, 16, 0);
  post(2, 0, 0);
  post(1, 8, 1);
  post(3, 20000, 0);
  post(1, 255, 0);
  std::size_t at = 0;
  while (true) {
    if (const Status status = incoming.take(); !status) {
      if (incoming.take() != status) std::abort();
      return 0;
    }
    if (incoming.waits() || at == stream.size()) break;
    std::array<iovec, 2> places{};
    const std::size_t count = incoming.places(places);
    std::size_t came = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t bytes =
          std::min({places[i].iov_len, at_once - came, stream.size() - at - came});
      std::memcpy(places[i].iov_base, stream.data() + at + came, bytes);
      came += bytes;
      if (bytes < places[i].iov_len) break;
    }
    if (came == 0) std::abort();  // there is always room
    incoming.arrived(came);
    at += came;
    if (drops && at > stream.size() / 2 && !incoming.has_dropped(1)) {
      incoming.drop(1);
      std::erase_if(receives, [](const auto& one) { return one->transfer.scope == 1; });
    }
  }
  if (counters.bytes_received > stream.size()) std::abort();
  if (cancels && !incoming.cancel()) return 0;
  for (const auto& one : receives) {
    if (one->transfer.done && one->transfer.bytes > stream.size()) std::abort();
  }
  return 0;
}
