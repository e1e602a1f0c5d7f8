// A control frame from a peer: an error, or what survives encoding and decoding.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "coordinator/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using kolo::internal::decode;
  using kolo::internal::encode;
  const auto frame = decode({reinterpret_cast<const char*>(data), size});
  if (!frame) return 0;
  const std::string once = encode(*frame);
  const auto again = decode(once);
  if (!again || encode(*again) != once) std::abort();
  return 0;
}
