#include "transport/frames.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "transport/handshake.h"

namespace kolo::internal {
namespace {

constexpr auto kWay = FrameDirection::kFromConnector;

struct Session {
  Digest key = random_digest();
  FrameSealer sealer{key, kWay};
  FrameReader reader{key, kWay, 1 << 20};

  void feed(std::string_view bytes, std::size_t at_once = SIZE_MAX) {
    while (!bytes.empty()) {
      const auto space = reader.space();
      const std::size_t n = std::min({bytes.size(), space.size(), at_once});
      std::memcpy(space.data(), bytes.data(), n);
      reader.commit(n);
      bytes.remove_prefix(n);
    }
  }
  // The bodies of all whole frames; "<bad>" at the end when the reader refused one.
  std::vector<std::string> read_all() {
    std::vector<std::string> bodies;
    while (true) {
      Result<std::optional<FrameReader::Frame>> frame = reader.next();
      if (!frame) {
        bodies.emplace_back("<bad>");
        return bodies;
      }
      if (!frame->has_value()) return bodies;
      bodies.emplace_back((*frame)->body);
    }
  }
  std::string sealed(std::string_view body, FrameKind kind = FrameKind::kMessage) {
    std::string out;
    sealer.seal(kind, body, out);
    return out;
  }
};

using Bodies = std::vector<std::string>;

TEST(Frames, ArriveWholeInOrderHoweverTheyAreCut) {
  for (const std::size_t at_once : {std::size_t{1}, std::size_t{7}, std::size_t{40}, SIZE_MAX}) {
    Session session;
    std::string stream;
    Bodies sent;
    for (const std::size_t bytes : {0U, 1U, 31U, 32U, 33U, 40000U, 5U}) {
      sent.emplace_back(bytes, 'a');
      stream += session.sealed(sent.back());
    }
    session.feed(stream, at_once);
    EXPECT_EQ(session.read_all(), sent);
  }
}

TEST(Frames, EveryFlippedBitIsRefused) {
  const std::string body = "a small frame";
  const std::size_t bits = (body.size() + sizeof(FrameHeader)) * 8;
  for (std::size_t bit = 0; bit < bits; ++bit) {
    Session session;
    std::string bytes = session.sealed(body);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    session.feed(bytes);
    const Bodies got = session.read_all();
    // A larger length only means that the frame is not whole yet: nothing comes out.
    EXPECT_TRUE(got.empty() || got == Bodies{"<bad>"}) << "bit " << bit;
  }
}

// A whole conversation as it goes up a connection: Hello, proof, 100 messages.
TEST(Frames, S73EveryFlippedBitOfAConversationIsRefused) {
  std::vector<std::string> bodies;
  for (std::size_t i = 0; i < 100; ++i) bodies.push_back("message " + std::to_string(i));
  const HandshakeClaim claim{1, HandshakeRole::kControl, 0, 1, 0, 1};
  std::size_t total = 0;
  // What an acceptor gets out of it with that bit flipped; SIZE_MAX: none is.
  const auto heard = [&](std::size_t bit) {
    Handshake from = Handshake::connector("job", "a secret of some length", claim, Digest{});
    Handshake to = Handshake::acceptor(
        "job", "a secret of some length", 1, [](const HandshakeClaim&) { return Refusal::kNone; },
        random_digest());
    Bodies got;
    std::size_t sent = 0;
    const auto up = [&](std::string bytes) {
      const std::size_t at = bit / 8;
      if (sent <= at && at < sent + bytes.size()) {
        bytes[at - sent] = static_cast<char>(bytes[at - sent] ^ (1 << bit % 8));
      }
      sent += bytes.size();
      return bytes;
    };
    while (!from.done()) {
      const std::string out = up(from.take_output());
      if (!to.feed(std::as_bytes(std::span(out))).is_ok()) return got;
      const std::string back = to.take_output();
      if (!from.feed(std::as_bytes(std::span(back))).is_ok()) return got;
    }
    FrameSealer sealer(from.session_key(), FrameDirection::kFromConnector);
    FrameReader reader(to.session_key(), FrameDirection::kFromConnector, 1 << 20);
    std::string stream;
    for (const std::string& body : bodies) sealer.seal(FrameKind::kMessage, body, stream);
    stream = up(stream);
    total = sent;
    std::memcpy(reader.space().data(), stream.data(), stream.size());
    reader.commit(stream.size());
    while (true) {
      const auto frame = reader.next();
      if (!frame || !frame->has_value()) return got;
      got.emplace_back((*frame)->body);
    }
  };
  ASSERT_EQ(heard(SIZE_MAX), bodies);
  ASSERT_GT(total, 4096U);
  const std::size_t step = std::getenv("KOLO_TEST_LONG") != nullptr ? 1 : 5;
  for (std::size_t bit = 0; bit < std::size_t{8} * 4096; bit += step) {
    const Bodies got = heard(bit);
    ASSERT_LT(got.size(), bodies.size()) << "bit " << bit;
    ASSERT_TRUE(std::equal(got.begin(), got.end(), bodies.begin())) << "bit " << bit;
  }
}

TEST(Frames, ReplaySwapAndLossAreRefused) {
  {
    Session session;
    const std::string one = session.sealed("one");
    session.feed(one + one);
    EXPECT_EQ(session.read_all(), (Bodies{"one", "<bad>"}));
    session.feed(session.sealed("two"));
    EXPECT_EQ(session.read_all(), Bodies{"<bad>"});  // broken for good
  }
  {
    Session session;
    const std::string one = session.sealed("one");
    const std::string two = session.sealed("two");
    session.feed(two + one);
    EXPECT_EQ(session.read_all(), Bodies{"<bad>"});
  }
}

TEST(Frames, OtherDirectionAndOtherSessionAreRefused) {
  Session session;
  FrameReader back(session.key, FrameDirection::kFromAcceptor, 1 << 20);
  const std::string bytes = session.sealed("hello");
  std::memcpy(back.space().data(), bytes.data(), bytes.size());
  back.commit(bytes.size());
  EXPECT_FALSE(back.next().is_ok());
  Session other;
  other.feed(bytes);
  EXPECT_EQ(other.read_all(), Bodies{"<bad>"});
}

TEST(Frames, ALengthAboveTheBoundIsRefusedFromItsHeader) {
  Session session;
  FrameHeader header{};
  header.bytes = UINT32_MAX;
  session.feed({reinterpret_cast<const char*>(&header), sizeof header});
  EXPECT_EQ(session.read_all(), Bodies{"<bad>"});
}

TEST(Frames, AClaimedLengthTakesNoMemory) {
  Session session;
  FrameHeader header{};
  header.bytes = 1 << 20;
  session.feed({reinterpret_cast<const char*>(&header), sizeof header});
  EXPECT_TRUE(session.read_all().empty());
  EXPECT_LE(session.reader.space().size(), 4 * FrameReader::kReadBytes);
}

TEST(Frames, TheCodeIsTheOneShotHmac) {
  // The context is reused for every frame; a reuse that forgot its key would show here.
  const Digest key = random_digest();
  Hmac again(key);
  const std::string_view text = "text";
  const std::array<std::span<const std::byte>, 1> parts{bytes_of(text)};
  const Digest first = again(parts);
  EXPECT_EQ(again(parts), first);
  EXPECT_EQ(Hmac(key)(parts), first);
  EXPECT_NE(Hmac(random_digest())(parts), first);
}

}  // namespace
}  // namespace kolo::internal
