// Any bytes into the reader of control frames, in pieces whose size the first byte picks. Frames
// that come out must be a prefix of what was really sealed: three frames under the same key.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "transport/frames.h"

using namespace kolo::internal;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kBodies[] = {"first", "", "third and last"};
  constexpr std::size_t kMaxBytes = 1 << 16;
  if (size == 0) return 0;
  FrameReader reader(Digest{}, FrameDirection::kFromConnector, kMaxBytes);
  const std::size_t at_once = data[0] + std::size_t{1};
  std::size_t frames = 0;
  for (std::size_t at = 1; at < size;) {
    const auto space = reader.space();
    if (space.size() > 4 * (kMaxBytes + size + FrameReader::kReadBytes)) std::abort();
    const std::size_t n = std::min({at_once, size - at, space.size()});
    std::memcpy(space.data(), data + at, n);
    reader.commit(n);
    at += n;
    while (true) {
      const auto frame = reader.next();
      if (!frame) return 0;
      if (!frame->has_value()) break;
      if (frames >= std::size(kBodies) || (*frame)->body != kBodies[frames]) std::abort();
      ++frames;
    }
  }
  return 0;
}
