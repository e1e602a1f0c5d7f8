// Any bytes into either side of a handshake: it never passes without the secret, never wants more
// than its bound, never crashes. The first byte picks the side.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transport/handshake.h"

using namespace kolo::internal;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view secret = "the secret that no input knows";
  const Digest nonce{};  // the same in every run, so that a run can be repeated
  Handshake side =
      (data[0] & 1) != 0
          ? Handshake::connector("job", secret, {1, HandshakeRole::kData, 0, 1, 0, 1}, nonce)
          : Handshake::acceptor(
                "job", secret, (data[0] & 2) != 0 ? 1 : 0,
                [](const HandshakeClaim&) { return Refusal::kNone; }, nonce);
  std::span<const std::byte> rest = std::as_bytes(std::span(data + 1, size - 1));
  std::size_t read = 0;
  while (side.wanted() > 0 && side.wanted() <= rest.size()) {
    const std::size_t wanted = side.wanted();
    (void)side.take_output();
    const Status status = side.feed(rest.first(wanted));
    rest = rest.subspan(wanted);
    read += wanted;
    if (read > Handshake::kMaxBytes) std::abort();
    if (!status.is_ok() && side.wanted() != 0) std::abort();
  }
  if (side.done()) std::abort();
  return 0;
}
