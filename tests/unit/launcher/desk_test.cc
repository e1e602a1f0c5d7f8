// The meeting at kolorun's desk, when ranks end: who waits is told at once, and nobody else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/meeting_desk.h"
#include "transport/rendezvous/codec.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Desk : public ::testing::Test {
 protected:
  // From host 0; the connection has the number of the rank plus 10 times the round.
  void join(int rank, int round = 0, const Status& obstacle = {}) {
    Meeting::Join join{0, kProtocolVersion, 2, {}, kNever, obstacle};
    join.peer.rank = rank;
    join.peer.host = "a";
    join.peer.endpoints = {"127.0.0.1:1"};
    desk_.join(0, {connection(rank, round), encode_join(join)});
  }
  void leave(int rank, int round = 0) { desk_.left(0, {connection(rank, round)}); }
  void harm(int rank, int round = 0, const Harm& harm = {}) {
    desk_.harmed(0, {connection(rank, round), encode_harm(harm)});
  }
  // Of the answers so far, those to this connection, which are removed.
  std::vector<Status> told(int rank, int round = 0) {
    std::vector<Status> result;
    std::erase_if(answers_, [&](const DeliverAnswer& one) {
      if (one.connection != connection(rank, round)) return false;
      const auto answer = decode_answer(one.connection, one.answer);
      EXPECT_TRUE(answer.is_ok()) << answer.status().text();
      if (answer) result.push_back(answer->status);
      return true;
    });
    return result;
  }
  void expect_lost(const std::vector<Status>& answers, const char* text) {
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].code(), StatusCode::kPeerLost);
    EXPECT_THAT(answers[0].text(), AllOf(HasSubstr("rank 1 on a ended"), HasSubstr(text)));
  }

  boost::asio::io_context io_;
  std::vector<DeliverAnswer> answers_;
  MeetingDesk desk_{io_, 2, 60s, [this](std::size_t, DeliverAnswer answer) {
                      answers_.push_back(std::move(answer));
                    }};

 private:
  static std::uint64_t connection(int rank, int round) {
    return static_cast<std::uint64_t>(10 * round + rank + 1);
  }
};

TEST_F(Desk, WhoWaitsIsToldThatAnotherEndedAndWhoComesLaterToo) {
  join(0);
  EXPECT_TRUE(told(0).empty());
  desk_.ended(1, "rank 1 on a ended");
  expect_lost(told(0), "before it joined");
  leave(0);
  desk_.ended(0, "rank 0 on a ended");  // the first one stays the cause
  join(0, 1);
  expect_lost(told(0, 1), "before it joined");
}

TEST_F(Desk, ACompleteMeetingIsNotTouchedByAnEnd) {
  join(0);
  join(1);
  EXPECT_THAT(told(0), ::testing::ElementsAre(Status::ok()));
  EXPECT_THAT(told(1), ::testing::ElementsAre(Status::ok()));
  leave(1);
  desk_.ended(1, "rank 1 on a ended");
  const auto news = told(0);  // if it is still connecting
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].code(), StatusCode::kPeerLost);
  EXPECT_THAT(news[0].text(), AllOf(HasSubstr("rank 1"), HasSubstr("during kolo_init")));
  EXPECT_FALSE(desk_.is_harmed(0));
  EXPECT_TRUE(answers_.empty());
  leave(0);
  join(0, 1);  // a second round, for which rank 1 did not stay
  expect_lost(told(0, 1), "cannot meet the others again");
}

TEST_F(Desk, KnowsWhoWasHarmedUntilItJoinsAgain) {
  join(0);
  join(1);
  harm(1);
  leave(1);
  EXPECT_TRUE(desk_.is_harmed(1));
  EXPECT_FALSE(desk_.is_harmed(0));
  harm(7);  // no such connection
  join(1, 1);
  EXPECT_FALSE(desk_.is_harmed(1));
}

// Whoever is told that another one keeps the job from beginning is not to blame for it.
TEST_F(Desk, KnowsWhoCouldNotBeginBecauseOfAnother) {
  join(0);
  join(1, 0, resource_error("no socket is left"));
  const auto answers = told(0);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_THAT(answers[0].text(), HasSubstr("no socket is left"));
  EXPECT_TRUE(desk_.is_harmed(0));
  EXPECT_FALSE(desk_.is_harmed(1));
  ASSERT_TRUE(desk_.first_lost().has_value());
  EXPECT_EQ(desk_.first_lost()->rank, 1);
  EXPECT_EQ(desk_.first_lost()->told_by, -1);
}

TEST_F(Desk, KnowsWhoNeverCame) {
  MeetingDesk hasty(io_, 2, 1ms, [](std::size_t, const DeliverAnswer&) {});
  Meeting::Join join{0, kProtocolVersion, 2, {}, kNever, {}};
  join.peer.rank = 0;
  hasty.join(0, {1, encode_join(join)});
  io_.run_for(10s);  // ends with the timer
  EXPECT_TRUE(hasty.is_harmed(0));
  ASSERT_TRUE(hasty.first_lost().has_value());
  EXPECT_EQ(hasty.first_lost()->rank, 1);
  EXPECT_THAT(hasty.first_lost()->why, HasSubstr("1 ms by --start-timeout of kolorun"));
}

TEST_F(Desk, NamesTheLostRankThatTheFirstHarmedNamed) {
  EXPECT_FALSE(desk_.first_lost());
  join(0);
  join(1);
  harm(0, 0, {1, "rank 1 on a is lost: silent"});
  harm(1, 0, {0, "later, and of the same"});  // thawed again, it sees the others gone
  const auto lost = desk_.first_lost();
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->rank, 1);
  EXPECT_EQ(lost->told_by, 0);
  EXPECT_EQ(lost->why, "rank 1 on a is lost: silent");
}

TEST_F(Desk, FollowsTheHarmedToWhatHarmedThem) {
  join(0);
  join(1);
  harm(0, 0, {1, "one"});
  harm(1, 0, {7, "two"});
  const auto lost = desk_.first_lost();
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->rank, 7);
  EXPECT_EQ(lost->told_by, 1);
  EXPECT_EQ(lost->why, "two");
}

TEST_F(Desk, NobodyIsToldTwice) {
  join(0);
  desk_.ended(1, "rank 1 on a ended");
  told(0);
  join(1);  // its message was on the way when it ended
  expect_lost(told(1), "before it joined");
  EXPECT_TRUE(answers_.empty());
  io_.run_for(1ms);
  EXPECT_TRUE(io_.stopped());  // no timer is left
}

}  // namespace
}  // namespace kolo::internal
