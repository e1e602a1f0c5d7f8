// Any bytes into either side of a handshake: it never passes without the secret, never wants more
// than its bound, never crashes. Or a peer that knows the secret and claims anything, with one byte
// of the exchange changed on its way: it passes only unchanged and admitted, both sides of one
// mind. The first byte picks the side, or the peer.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "transport/handshake.h"

using namespace kolo::internal;

namespace {

// A whole exchange; byte number `at` of all that is sent is XORed with `change`.
void exchange(const HandshakeClaim& claim, Refusal verdict, std::size_t at, std::uint8_t change) {
  constexpr std::string_view kSecret = "the secret that both sides know";
  Handshake connector = Handshake::connector("job", kSecret, claim, Digest{});
  HandshakeClaim seen;
  Handshake acceptor = Handshake::acceptor(
      "job", kSecret, 1,
      [&](const HandshakeClaim& admitted) {
        seen = admitted;
        return verdict;
      },
      Digest{});
  std::string to_acceptor;
  std::string to_connector;
  std::size_t sent = 0;
  const auto pass = [&](Handshake& from, std::string& queue) {
    for (char byte : from.take_output()) {
      if (sent++ == at) byte = static_cast<char>(byte ^ change);
      queue += byte;
    }
  };
  const auto take = [](Handshake& to, std::string& queue) {
    const std::size_t wanted = to.wanted();
    if (wanted == 0 || queue.size() < wanted) return false;
    static_cast<void>(to.feed(std::as_bytes(std::span(queue)).first(wanted)));
    queue.erase(0, wanted);
    return true;
  };
  for (bool moved = true; moved;) {
    pass(connector, to_acceptor);
    moved = take(acceptor, to_acceptor);
    pass(acceptor, to_connector);
    moved = take(connector, to_connector) || moved;
  }
  const bool both = connector.done() && acceptor.done();
  const bool unchanged = change == 0 || at >= sent;
  const bool admitted = verdict == Refusal::kNone && claim.protocol == 1;
  if (both != (unchanged && admitted)) std::abort();
  if (!both) return;
  if (connector.session_key() != acceptor.session_key()) std::abort();
  const auto tie = [](const HandshakeClaim& c) {
    return std::tuple(c.protocol, c.role, c.stream, c.from, c.to, c.generation);
  };
  if (tie(seen) != tie(claim)) std::abort();
}

void check_peer(std::span<const std::uint8_t> bytes) {
  struct Choice {
    HandshakeClaim claim;
    std::uint16_t at;
    std::uint8_t change;
    std::uint8_t verdict;
  } choice{};
  static_assert(std::is_trivially_copyable_v<Choice>);
  std::memcpy(&choice, bytes.data(), std::min(bytes.size(), sizeof choice));
  if (choice.verdict % 4 != 0) choice.claim.protocol = 1;
  exchange(choice.claim, static_cast<Refusal>(choice.verdict / 4 % 8), choice.at % 1024,
           choice.change);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  if ((data[0] & 4) != 0) {
    check_peer(std::span(data + 1, size - 1));
    return 0;
  }
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
