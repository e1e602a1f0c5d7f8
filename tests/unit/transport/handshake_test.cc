#include "transport/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kJob = "job 1";
constexpr std::string_view kSecret = "0123456789abcdef0123456789abcdef";

HandshakeClaim claim() { return {1, HandshakeRole::kData, 1, 3, 2, 7}; }

Handshake connector(std::string_view job = kJob, std::string_view secret = kSecret,
                    HandshakeClaim what = claim()) {
  return Handshake::connector(job, secret, what, random_digest());
}

Handshake acceptor(Refusal answer = Refusal::kNone, std::uint32_t protocol = 1) {
  return Handshake::acceptor(
      kJob, kSecret, protocol, [answer](const HandshakeClaim&) { return answer; }, random_digest());
}

// Runs both sides against each other. `tamper` may alter each message, numbered from 0.
struct Outcome {
  Status connector;
  Status acceptor;
  std::vector<std::string> messages;
};

template <typename Tamper>
Outcome run(Handshake& a, Handshake& b, Tamper tamper) {
  Outcome outcome;
  std::array<Handshake*, 2> sides{&a, &b};
  std::array<Status*, 2> statuses{&outcome.connector, &outcome.acceptor};
  for (std::size_t turn = 0; turn < 4; ++turn) {
    std::string message = sides[turn % 2]->take_output();
    outcome.messages.push_back(message);
    tamper(turn, message);
    const std::size_t to = (turn + 1) % 2;
    if (message.empty() || message.size() != sides[to]->wanted()) break;
    *statuses[to] = sides[to]->feed(bytes_of(message));
  }
  return outcome;
}

Outcome run(Handshake& a, Handshake& b) {
  return run(a, b, [](std::size_t, std::string&) {});
}

TEST(Handshake, BothSidesPassAndShareAKey) {
  Handshake a = connector();
  Handshake b = acceptor();
  const Outcome outcome = run(a, b);
  EXPECT_TRUE(outcome.connector.is_ok()) << outcome.connector.to_string();
  EXPECT_TRUE(outcome.acceptor.is_ok()) << outcome.acceptor.to_string();
  ASSERT_TRUE(a.done() && b.done());
  EXPECT_EQ(a.session_key(), b.session_key());
  EXPECT_EQ(b.peer().from, 3);
  EXPECT_EQ(b.peer().to, 2);
  EXPECT_EQ(b.peer().stream, 1U);
  EXPECT_EQ(b.peer().generation, 7U);
  EXPECT_EQ(b.peer().role, HandshakeRole::kData);
  std::size_t total = 0;
  for (const std::string& message : outcome.messages) total += message.size();
  EXPECT_LT(total, Handshake::kMaxBytes);
}

TEST(Handshake, EverySessionHasItsOwnKey) {
  Handshake a1 = connector(), b1 = acceptor(), a2 = connector(), b2 = acceptor();
  run(a1, b1);
  run(a2, b2);
  EXPECT_NE(a1.session_key(), a2.session_key());
}

TEST(Handshake, EveryFlippedBitIsRefused) {
  Handshake a0 = connector(), b0 = acceptor();
  const Outcome good = run(a0, b0);
  ASSERT_EQ(good.messages.size(), 4U);
  for (std::size_t which = 0; which < good.messages.size(); ++which) {
    for (std::size_t bit = 0; bit < good.messages[which].size() * 8; ++bit) {
      Handshake a = connector(), b = acceptor();
      run(a, b, [&](std::size_t turn, std::string& message) {
        if (turn != which) return;
        message[bit / 8] = static_cast<char>(message[bit / 8] ^ (1 << (bit % 8)));
      });
      // The last message's only reader is the connector; before it, neither side may pass.
      EXPECT_FALSE(a.done()) << "message " << which << " bit " << bit;
      if (which < 3) {
        EXPECT_FALSE(b.done()) << "message " << which << " bit " << bit;
      }
    }
  }
}

TEST(Handshake, ARecordedExchangeCannotBeReplayed) {
  Handshake a = connector(), b = acceptor();
  const Outcome recorded = run(a, b);
  Handshake fresh = acceptor();
  ASSERT_TRUE(fresh.feed(bytes_of(recorded.messages[0])).is_ok());
  (void)fresh.take_output();
  EXPECT_FALSE(fresh.feed(bytes_of(recorded.messages[2])).is_ok());
  EXPECT_FALSE(fresh.done());
  EXPECT_EQ(fresh.wanted(), 0U);
}

TEST(Handshake, AProofCannotBeReflected) {
  Handshake b = acceptor();
  Handshake a = connector();
  ASSERT_TRUE(b.feed(bytes_of(a.take_output())).is_ok());
  const std::string challenge = b.take_output();
  const std::string proof = challenge.substr(challenge.size() - sizeof(Digest));
  EXPECT_FALSE(b.feed(bytes_of(proof)).is_ok());
}

TEST(Handshake, WrongSecretIsNamed) {
  Handshake a = connector(kJob, "another secret of some length");
  Handshake b = acceptor();
  const Outcome outcome = run(a, b);
  EXPECT_EQ(outcome.connector.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(outcome.connector.text(), AllOf(HasSubstr("wrong secret"), HasSubstr("KOLO_SECRET")));
  EXPECT_FALSE(a.done() || b.done());
}

TEST(Handshake, WrongSecretIsNoticedByTheAcceptorToo) {
  Handshake a = connector(kJob, "another secret of some length");
  Handshake b = acceptor();
  ASSERT_TRUE(b.feed(bytes_of(a.take_output())).is_ok());
  const Digest guess = random_digest();
  const Status status = b.feed(guess);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.text(), HasSubstr("wrong secret"));
  EXPECT_TRUE(b.take_output().size() == 112U);  // the challenge, and no word after it
}

TEST(Handshake, OtherProtocolNamesBothOnBothSides) {
  HandshakeClaim newer = claim();
  newer.protocol = 2;
  Handshake a = connector(kJob, kSecret, newer);
  Handshake b = acceptor();
  const Outcome outcome = run(a, b);
  EXPECT_THAT(outcome.connector.text(), AllOf(HasSubstr("protocol 2"), HasSubstr("1 at the peer")));
  EXPECT_THAT(outcome.acceptor.text(), AllOf(HasSubstr("protocol 1"), HasSubstr("2 at the peer")));
}

TEST(Handshake, AnAcceptorMayLetEveryProtocolThroughToItsOwner) {
  HandshakeClaim newer = claim();
  newer.protocol = 2;
  Handshake a = connector(kJob, kSecret, newer);
  Handshake b = acceptor(Refusal::kNone, 0);
  run(a, b);
  ASSERT_TRUE(a.done() && b.done());
  EXPECT_EQ(b.peer().protocol, 2U);
}

TEST(Handshake, OtherJobIsNamed) {
  Handshake a = connector("job 2");
  Handshake b = acceptor();
  const Outcome outcome = run(a, b);
  EXPECT_THAT(outcome.connector.text(), HasSubstr("other job"));
  EXPECT_THAT(outcome.acceptor.text(), HasSubstr("other job"));
}

TEST(Handshake, WhoDoesNotKnowTheJobIsShownNothingOfIt) {
  Handshake a = connector("job 2"), b = acceptor();
  const std::string challenge = run(a, b).messages[1];
  ASSERT_EQ(challenge.size(), 112U);
  EXPECT_EQ(challenge.substr(12), std::string(100, '\0')) << "a tag, a nonce or a proof";
}

TEST(Handshake, RefusalsReachTheConnectorWithTheirReason) {
  const std::vector<std::pair<Refusal, std::string>> rows = {
      {Refusal::kWrongRank, "does not expect this rank"},
      {Refusal::kWrongGeneration, "another generation"},
      {Refusal::kWrongStream, "number of streams"},
      {Refusal::kWrongRole, "kind of connection"},
      {Refusal::kDuplicate, "rank already present"}};
  for (const auto& [refusal, text] : rows) {
    Handshake a = connector(), b = acceptor(refusal);
    const Outcome outcome = run(a, b);
    EXPECT_EQ(outcome.connector.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(outcome.connector.text(), HasSubstr(text));
    EXPECT_THAT(outcome.acceptor.text(), HasSubstr(text));
    EXPECT_FALSE(a.done() || b.done());
  }
}

TEST(Handshake, NothingIsAdmittedBeforeItsProof) {
  bool asked = false;
  Handshake b = Handshake::acceptor(
      kJob, kSecret, 1,
      [&](const HandshakeClaim&) {
        asked = true;
        return Refusal::kNone;
      },
      random_digest());
  Handshake a = connector();
  ASSERT_TRUE(b.feed(bytes_of(a.take_output())).is_ok());
  EXPECT_FALSE(b.feed(random_digest()).is_ok());
  EXPECT_FALSE(asked);
}

TEST(Handshake, StrangersAreEndedAtTheirFirstBytes) {
  Handshake b = acceptor();
  std::string request = "GET / HTTP/1.1\r\nHost: example\r\n";
  request.resize(b.wanted(), 'x');
  EXPECT_EQ(b.feed(bytes_of(request)).code(), StatusCode::kInternal);
  EXPECT_TRUE(b.take_output().empty());
  Handshake a = connector();
  (void)a.take_output();
  request.resize(a.wanted(), 'x');
  EXPECT_EQ(a.feed(bytes_of(request)).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace kolo::internal
