// The agreement of all ranks on a step of the start, over control links in memory.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "transport/inproc/inproc_control.h"
#include "transport/tcp/links.h"
#include "transport/tcp/mesh_agreement.h"

namespace kolo::internal {
namespace {

// Ranks 0 and 1 on one host, 2 and 3 on another.
class AgreementTest : public testing::Test {
 protected:
  AgreementTest() : network_({0, 0, 1, 1}) {
    for (int rank = 0; rank < 4; ++rank) {
      table_.peers.push_back({rank, rank / 2, rank % 2, "h" + std::to_string(rank / 2), 0, {}, {}});
      links_.push_back(network_.link(rank));
    }
  }

  void die(int rank) { links_[static_cast<std::size_t>(rank)].reset(); }

  // What each rank that lives comes to, having to say `own`; then it leaves.
  std::vector<Status> agree_on(const std::vector<Status>& own) {
    std::vector<Status> verdicts(own.size());
    std::vector<std::thread> threads;
    for (std::size_t place = 0; place < own.size(); ++place) {
      if (links_[place] == nullptr) continue;
      threads.emplace_back([&, place] {
        const int rank = static_cast<int>(place);
        auto poller = Poller::create();
        ASSERT_TRUE(poller.is_ok());
        verdicts[place] = agree(*links_[place], linked_ranks(table_, rank), table_, rank,
                                own[place], *poller, SteadyClock().now() + 5s);
        if (!verdicts[place].is_ok()) links_[place].reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return verdicts;
  }

  InprocControlNetwork network_;
  PeerTable table_;
  std::vector<std::unique_ptr<ControlLink>> links_;
};

TEST_F(AgreementTest, AllIsWell) {
  for (const Status& verdict : agree_on(std::vector<Status>(4))) EXPECT_EQ(verdict, Status::ok());
  EXPECT_FALSE(links_[0]->poll().has_value());
}

TEST_F(AgreementTest, AllHearOfOneThatCannot) {
  std::vector<Status> own(4);
  own[1] = resource_error("rank 1 lacks memory");
  own[2] = resource_error("rank 2 lacks memory");
  own[3] = resource_error("rank 3 lacks memory");
  for (const Status& verdict : agree_on(own)) EXPECT_EQ(verdict, own[1]);
}

// Its leader cannot go on because of it.
TEST_F(AgreementTest, ADeathIsTheCauseOfWhateverElseIsSaid) {
  die(3);
  std::vector<Status> own(4);
  own[1] = timed_out("rank 1 has no connection to rank 3");
  own[2] = resource_error("rank 2 cannot share its memory");
  const std::vector<Status> verdicts = agree_on(own);
  for (const std::size_t rank : {0U, 1U, 2U}) {
    EXPECT_EQ(verdicts[rank].code(), StatusCode::kPeerLost) << verdicts[rank].to_string();
    EXPECT_NE(verdicts[rank].text().find("rank 3 on h1"), std::string::npos);
  }
}

// Rank 3 dies after its word, while its leader listens to the root: that is for the next step.
TEST_F(AgreementTest, WhatComesMeanwhileIsNotLost) {
  ASSERT_TRUE(links_[3]->send(2, std::string(1, '\0')).is_ok());
  die(3);
  const std::vector<Status> first = agree_on(std::vector<Status>(4));
  for (const std::size_t rank : {0U, 1U, 2U}) EXPECT_EQ(first[rank], Status::ok());
  const std::vector<Status> second = agree_on(std::vector<Status>(4));
  for (const std::size_t rank : {0U, 1U, 2U}) {
    EXPECT_NE(second[rank].text().find("rank 3"), std::string::npos) << second[rank].to_string();
  }
}

}  // namespace
}  // namespace kolo::internal
