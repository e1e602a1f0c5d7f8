#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/rendezvous/codec.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Meeting::Join join_of(std::uint64_t connection, int rank, int size,
                      std::uint32_t protocol = kProtocolVersion) {
  Meeting::Join join;
  join.connection = connection;
  join.protocol = protocol;
  join.size = size;
  join.peer.rank = rank;
  join.peer.host = "host-" + std::to_string(rank);
  join.peer.pid = 100 + rank;
  join.peer.endpoints = {"127.0.0.1:" + std::to_string(5000 + rank)};
  join.peer.settings = std::string("\0x", 2);
  return join;
}

TEST(Meeting, CompletesWhenAllHaveJoinedInWhateverOrder) {
  Meeting meeting(3);
  EXPECT_FALSE(meeting.anyone_waits());
  EXPECT_TRUE(meeting.join(join_of(10, 2, 3)).empty());
  EXPECT_TRUE(meeting.anyone_waits());
  EXPECT_TRUE(meeting.join(join_of(11, 0, 3)).empty());
  EXPECT_THAT(meeting.missing(), ElementsAre(1));
  const auto answers = meeting.join(join_of(12, 1, 3));
  ASSERT_EQ(answers.size(), 3U);
  for (const Meeting::Answer& answer : answers) {
    EXPECT_TRUE(answer.status.is_ok());
    EXPECT_EQ(answer.table.generation, 1U);
    ASSERT_EQ(answer.table.peers.size(), 3U);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(answer.table.peers[static_cast<std::size_t>(rank)].rank, rank);
    }
  }
  EXPECT_FALSE(meeting.anyone_waits());
}

TEST(Meeting, RefusesWhatConcernsOneRankAlone) {
  Meeting meeting(2);
  EXPECT_TRUE(meeting.join(join_of(1, 0, 2)).empty());
  const auto again = meeting.join(join_of(2, 0, 2));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].connection, 2U);
  EXPECT_EQ(again[0].status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(again[0].status.text(), AllOf(HasSubstr("rank already present"), HasSubstr("rank 0"),
                                            HasSubstr("host-0"), HasSubstr("KOLO_RANK")));
  for (const int rank : {-1, 2, 1 << 30}) {
    const auto answers = meeting.join(join_of(3, rank, 2));
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_THAT(answers[0].status.text(), HasSubstr("out of range"));
  }
  EXPECT_EQ(meeting.join(join_of(5, 1, 2)).size(), 2U);  // and the round still completes
}

TEST(Meeting, AnotherSizeEndsTheStartForAll) {
  Meeting meeting(2);
  EXPECT_TRUE(meeting.join(join_of(1, 0, 2)).empty());
  const auto answers = meeting.join(join_of(4, 1, 3));
  ASSERT_EQ(answers.size(), 2U);
  for (const Meeting::Answer& answer : answers) {
    EXPECT_EQ(answer.status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(answer.status.text(), AllOf(HasSubstr("rank 1 (host host-1"),
                                            HasSubstr("has 3 ranks"), HasSubstr("for 2")));
  }
  meeting.left(1);
  meeting.left(4);
  EXPECT_TRUE(meeting.join(join_of(5, 1, 2)).empty());  // all were told: a round of its own
  EXPECT_EQ(meeting.join(join_of(6, 0, 2)).size(), 2U);
}

TEST(Meeting, ARankThatCannotTakePartEndsTheStartForAllHoweverLate) {
  Meeting meeting(3);
  EXPECT_TRUE(meeting.join(join_of(1, 0, 3)).empty());
  Meeting::Join sorry = join_of(2, 1, 3);
  sorry.obstacle = Status(StatusCode::kResource, "no socket is left");
  auto answers = meeting.join(*decode_join(2, encode_join(sorry)));
  ASSERT_EQ(answers.size(), 2U);
  const auto late = meeting.join(join_of(3, 2, 3));
  ASSERT_EQ(late.size(), 1U);
  answers.push_back(late[0]);
  for (const Meeting::Answer& answer : answers) {
    EXPECT_EQ(answer.status.code(), StatusCode::kPeerLost);
    EXPECT_THAT(answer.status.text(),
                AllOf(HasSubstr("rank 1 (host host-1, pid 101) cannot take part"),
                      HasSubstr("no socket is left")));
  }
}

TEST(Meeting, PlacesThatRanksDoNotKnowAreFound) {
  Meeting meeting(4);
  std::vector<Meeting::Answer> answers;
  for (const auto& [rank, host] : {std::pair(3, "b"), {1, "b"}, {0, "a"}, {2, "a"}}) {
    Meeting::Join join = join_of(static_cast<std::uint64_t>(rank), rank, 4);
    join.peer.host = host;
    join.peer.host_index = rank == 1 ? 5 : -1;  // one that does is not alone in being right
    join.peer.local_rank = -1;
    answers = meeting.join(join);
  }
  ASSERT_EQ(answers.size(), 4U);
  std::vector<std::pair<int, int>> places;
  for (const PeerInfo& peer : answers[0].table.peers) {
    places.emplace_back(peer.host_index, peer.local_rank);
  }
  EXPECT_THAT(places,
              ElementsAre(std::pair(0, 0), std::pair(1, 0), std::pair(0, 1), std::pair(1, 1)));
}

TEST(Meeting, TheFirstLimitThatEndsCountsAndIsNamed) {
  Meeting meeting(3, {10s, "--start-timeout", "kolorun"});
  EXPECT_EQ(meeting.next_expiry(), kNever);
  Meeting::Join patient = join_of(1, 0, 3);
  patient.limit = 60s;
  meeting.join(patient, 1s);
  EXPECT_EQ(meeting.next_expiry(), Nanos(11s));
  EXPECT_THAT(Meeting(meeting).expire("here")[0].status.text(),
              AllOf(HasSubstr("missing ranks 1, 2 of 3"),
                    HasSubstr("10000 ms by --start-timeout of kolorun"),
                    HasSubstr("or raise --start-timeout")));
  Meeting::Join hasty = join_of(2, 1, 3);
  hasty.limit = 500ms;
  meeting.join(hasty, 2s);
  EXPECT_EQ(meeting.next_expiry(), Nanos(2500ms));
  meeting.join(join_of(3, 1, 3), 2s);
  const auto answers = meeting.expire("here", "it rains");
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_THAT(answers[0].status.text(),
              AllOf(HasSubstr("missing rank 2 of 3"),
                    HasSubstr("500 ms by KOLO_START_TIMEOUT_MS of rank 1"),
                    HasSubstr("or raise KOLO_START_TIMEOUT_MS"), HasSubstr("it rains"),
                    HasSubstr("refused meanwhile: rank already present")));
  EXPECT_EQ(meeting.next_expiry(), kNever);
}

TEST(Meeting, OtherProtocolFailsTheRoundForEachRankHoweverLate) {
  Meeting meeting(3);
  EXPECT_TRUE(meeting.join(join_of(1, 0, 3)).empty());
  const auto answers = meeting.join(join_of(2, 1, 3, kProtocolVersion + 1));
  ASSERT_EQ(answers.size(), 2U);
  for (const Meeting::Answer& answer : answers) {
    EXPECT_EQ(answer.status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(answer.status.text(),
                AllOf(HasSubstr("rank 1"), HasSubstr("protocol 2"), HasSubstr("speak 1")));
  }
  meeting.left(1);
  meeting.left(2);
  const auto late = meeting.join(join_of(3, 2, 3));
  ASSERT_EQ(late.size(), 1U);
  EXPECT_THAT(late[0].status.text(), HasSubstr("protocol 2"));
  meeting.left(3);
  // All have heard of it: a fresh round may start.
  EXPECT_TRUE(meeting.join(join_of(4, 0, 3)).empty());
}

TEST(Meeting, LeavingMakesRoomInTheSameRound) {
  Meeting meeting(2);
  EXPECT_TRUE(meeting.join(join_of(1, 0, 2)).empty());
  meeting.left(1);
  EXPECT_TRUE(meeting.join(join_of(2, 0, 2)).empty());
  EXPECT_EQ(meeting.join(join_of(3, 1, 2)).size(), 2U);
}

TEST(Meeting, ARankThatIsLostWhileItWaitsEndsTheRound) {
  Meeting meeting(3);
  EXPECT_TRUE(meeting.join(join_of(1, 0, 3)).empty());
  EXPECT_TRUE(meeting.join(join_of(2, 1, 3)).empty());
  const auto answers = meeting.lost(2);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].connection, 1U);
  EXPECT_EQ(answers[0].status.code(), StatusCode::kPeerLost);
  EXPECT_THAT(answers[0].status.text(), HasSubstr("rank 1 (host host-1, pid 101) is lost"));
  EXPECT_TRUE(meeting.lost(1).empty());  // it was told, and goes
  EXPECT_TRUE(meeting.lost(7).empty());
  // The next round is everybody's.
  EXPECT_TRUE(meeting.join(join_of(3, 0, 3)).empty());
  EXPECT_TRUE(meeting.join(join_of(4, 1, 3)).empty());
  EXPECT_EQ(meeting.join(join_of(5, 2, 3)).size(), 3U);
}

// However it is known that it left.
TEST(Meeting, TheFirstToLeaveACompleteRoundIsToldToTheOthersOnce) {
  for (const bool is_lost : {false, true}) {
    Meeting meeting(3);
    for (int rank = 0; rank < 3; ++rank) {
      static_cast<void>(meeting.join(join_of(1 + static_cast<std::uint64_t>(rank), rank, 3)));
    }
    const auto news = is_lost ? meeting.lost(2) : meeting.left(2);
    ASSERT_EQ(news.size(), 2U);
    for (const std::size_t i : {0U, 1U}) {
      EXPECT_EQ(news[i].connection, i == 0 ? 1U : 3U);
      EXPECT_EQ(news[i].status.code(), StatusCode::kPeerLost);
      EXPECT_THAT(news[i].status.text(), HasSubstr("rank 1 (host host-1, pid 101) is lost"));
    }
    EXPECT_TRUE((is_lost ? meeting.lost(1) : meeting.left(1)).empty());
    // A rank of the next round that waits is told of no one who leaves the last one.
    EXPECT_TRUE(meeting.join(join_of(4, 0, 3)).empty());
    EXPECT_TRUE(meeting.left(3).empty());
  }
}

TEST(Meeting, EveryRoundHasItsOwnGeneration) {
  Meeting meeting(2);
  std::uint64_t connection = 0;
  for (std::uint64_t round = 1; round <= 100; ++round) {
    const std::uint64_t a = ++connection;
    const std::uint64_t b = ++connection;
    EXPECT_TRUE(meeting.join(join_of(a, 0, 2)).empty());
    const auto answers = meeting.join(join_of(b, 1, 2));
    ASSERT_EQ(answers.size(), 2U);
    EXPECT_EQ(answers[0].table.generation, round);
    meeting.left(a);
    meeting.left(b);
  }
}

TEST(Meeting, ANewRoundWaitsForThoseWhoAreStillInTheOldOne) {
  Meeting meeting(2);
  meeting.join(join_of(1, 0, 2));
  meeting.join(join_of(2, 1, 2));
  meeting.left(1);
  EXPECT_TRUE(meeting.join(join_of(3, 0, 2)).empty());
  EXPECT_THAT(meeting.missing(), ElementsAre(1));
  meeting.left(2);
  const auto answers = meeting.join(join_of(4, 1, 2));
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].table.generation, 2U);
}

TEST(Meeting, ExpiryTellsTheWaitingWhoIsMissing) {
  Meeting meeting(4);
  EXPECT_TRUE(meeting.expire("127.0.0.1:9").empty());
  meeting.join(join_of(1, 0, 4));
  meeting.join(join_of(2, 2, 4));
  const auto answers = meeting.expire("127.0.0.1:9");
  ASSERT_EQ(answers.size(), 2U);
  for (const Meeting::Answer& answer : answers) {
    EXPECT_EQ(answer.status.code(), StatusCode::kTimedOut);
    EXPECT_THAT(answer.status.text(),
                AllOf(HasSubstr("missing ranks 1, 3 of 4"), HasSubstr("127.0.0.1:9"),
                      HasSubstr("KOLO_START_TIMEOUT_MS")));
  }
  EXPECT_TRUE(meeting.expire("127.0.0.1:9").empty());  // nobody is told twice
}

TEST(RendezvousCodec, BringsEverythingAcross) {
  const Meeting::Join join = join_of(5, 1, 3);
  const Result<Meeting::Join> back = decode_join(9, encode_join(join));
  ASSERT_TRUE(back.is_ok());
  EXPECT_EQ(back->connection, 9U);
  EXPECT_EQ(back->size, 3);
  EXPECT_EQ(back->peer.endpoints, join.peer.endpoints);
  EXPECT_EQ(back->peer.settings, join.peer.settings);
  EXPECT_EQ(back->peer.pid, 101);

  Meeting meeting(1);
  const auto answers = meeting.join(join_of(1, 0, 1));
  ASSERT_EQ(answers.size(), 1U);
  const Result<Meeting::Answer> answer = decode_answer(1, encode_answer(answers[0]));
  ASSERT_TRUE(answer.is_ok());
  EXPECT_TRUE(answer->status.is_ok());
  EXPECT_EQ(answer->table.peers[0].host, "host-0");
  const Result<Meeting::Answer> error =
      decode_answer(1, encode_answer({1, timed_out("missing rank 1"), {}}));
  ASSERT_TRUE(error.is_ok());
  EXPECT_EQ(error->status, timed_out("missing rank 1"));
}

TEST(RendezvousCodec, RefusesWhatIsMalformedOrTooLarge) {
  EXPECT_FALSE(decode_join(0, "\xff\xff\xff").is_ok());
  EXPECT_FALSE(decode_answer(0, "\xff\xff\xff").is_ok());
  Meeting::Join join = join_of(5, 1, 3);
  join.peer.host.assign(5000, 'h');
  EXPECT_THAT(decode_join(0, encode_join(join)).status().text(), HasSubstr("host name"));
  join = join_of(5, 1, 3);
  join.peer.endpoints.assign(65, "e");
  EXPECT_FALSE(decode_join(0, encode_join(join)).is_ok());
  join = join_of(5, 1, 3);
  join.peer.settings.assign(70000, 's');
  EXPECT_FALSE(decode_join(0, encode_join(join)).is_ok());
  Meeting::Answer answer;
  answer.table.peers.resize(2);
  answer.table.peers[0].rank = 1;
  EXPECT_FALSE(decode_answer(0, encode_answer(answer)).is_ok());
  EXPECT_THAT(Status(decode_join(0, "\xff").status()).text(), Not(HasSubstr("connection")));
}

}  // namespace
}  // namespace kolo::internal
