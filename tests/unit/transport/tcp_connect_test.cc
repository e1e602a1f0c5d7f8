#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/transport/loopback.h"
#include "transport/tcp/links.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Transfer transfer(std::uint64_t tag, void* data, std::size_t bytes) {
  return {.tag = tag, .data = static_cast<std::byte*>(data), .bytes = bytes};
}

class TcpConnect : public ::testing::TestWithParam<int> {};

TEST_P(TcpConnect, EveryPairHasItsStreamsAndControlWhereDue) {
  MeshPlan plan;
  plan.size = GetParam();
  for (int rank = 0; rank < plan.size; ++rank) plan.host_index.push_back(rank / 2);
  std::vector<MeshRank> ranks = connect_mesh(plan);
  for (const MeshRank& rank : ranks) {
    ASSERT_TRUE(rank.fabric.is_ok()) << rank.fabric.status().to_string();
  }
  const PeerTable& table = ranks[0].fabric->table;
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    Fabric& fabric = *ranks[a].fabric;
    ASSERT_EQ(fabric.channels.size(), 2U);
    for (std::size_t b = 0; b < ranks.size(); ++b) {
      for (const auto& stream : fabric.channels) EXPECT_EQ(stream[b] == nullptr, a == b);
      const Status sent = fabric.control->send(static_cast<int>(b), "from " + std::to_string(a));
      EXPECT_EQ(sent.is_ok(), have_control(table, static_cast<int>(a), static_cast<int>(b)));
    }
  }
  // What each channel carries comes from the right rank on the right stream.
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    for (std::size_t b = 0; b < ranks.size(); ++b) {
      for (std::size_t stream = 0; a != b && stream < 2; ++stream) {
        std::uint64_t out = a * 100 + b * 10 + stream;
        std::uint64_t in = 0;
        Transfer send = transfer(1, &out, sizeof out);
        Transfer receive = transfer(1, &in, sizeof in);
        Channel& from = *ranks[a].fabric->channels[stream][b];
        Channel& to = *ranks[b].fabric->channels[stream][a];
        from.post_send(send);
        to.post_receive(receive);
        while (!receive.done) {
          ASSERT_TRUE(from.advance().is_ok());
          ASSERT_TRUE(to.advance().is_ok());
        }
        EXPECT_EQ(in, out);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, TcpConnect, ::testing::Values(1, 2, 3, 4, 8));

TEST(TcpConnectErrors, AMissingRankIsNamedWhenTheTimeIsOver) {
  MeshPlan plan;
  plan.size = 3;
  plan.absent = 2;  // the others wait for it
  plan.options.start_timeout = 1s;
  const Nanos start = SteadyClock().now();
  const std::vector<MeshRank> ranks = connect_mesh(plan);
  for (const std::size_t rank : {0U, 1U}) {
    const Status& status = ranks[rank].fabric.status();
    EXPECT_EQ(status.code(), StatusCode::kTimedOut);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("to rank 2 (host host-0)"),
                                     HasSubstr("KOLO_START_TIMEOUT_MS"), HasSubstr("1000 ms")));
    EXPECT_THAT(status.text(), Not(HasSubstr("to rank 0")));
  }
  EXPECT_LT(SteadyClock().now() - start, 5s);
}

TEST(TcpConnectErrors, ASilentLowerRankTimesOutTheHigherOnes) {
  MeshPlan plan;
  plan.size = 2;
  plan.absent = 0;  // it listens, but never answers
  plan.options.start_timeout = 200ms;
  const std::vector<MeshRank> ranks = connect_mesh(plan);
  EXPECT_EQ(ranks[1].fabric.status().code(), StatusCode::kTimedOut);
  EXPECT_THAT(ranks[1].fabric.status().text(), HasSubstr("rank 0"));
}

TEST(TcpConnectErrors, AClosedEndpointIsALostPeerAtOnce) {
  PeerTable table;
  table.generation = 1;
  table.peers = {test_peer(0), test_peer(1)};
  {
    auto gone = TcpListener::open({"127.0.0.1"});
    table.peers[0].endpoints = (*gone)->endpoints();
  }
  auto listener = TcpListener::open({"127.0.0.1"});
  Poller poller = std::move(*Poller::create());
  const Nanos start = SteadyClock().now();
  const auto fabric =
      tcp_connect(**listener, test_identity(), table, 1, {2, {"127.0.0.1"}, 20s}, poller);
  EXPECT_EQ(fabric.status().code(), StatusCode::kPeerLost);
  EXPECT_THAT(fabric.status().text(),
              AllOf(HasSubstr("rank 0 (host host-0)"), HasSubstr(table.peers[0].endpoints[0])));
  EXPECT_LT(SteadyClock().now() - start, 5s);
}

TEST(TcpConnectErrors, OtherGenerationAndOtherSecretAreRefused) {
  for (const bool other_secret : {true, false}) {
    std::vector<std::unique_ptr<TcpListener>> listeners;
    PeerTable table;
    table.generation = 1;
    for (int rank = 0; rank < 2; ++rank) {
      listeners.push_back(std::move(*TcpListener::open({"127.0.0.1"})));
      table.peers.push_back(test_peer(rank));
      table.peers.back().endpoints = listeners.back()->endpoints();
    }
    PeerTable stale = table;
    JobIdentity identity = test_identity();
    if (other_secret) {
      identity.secret = "another secret of some length";
    } else {
      stale.generation = 2;
    }
    const TcpOptions options{1, {"127.0.0.1"}, 400ms};
    auto zero = std::async(std::launch::async, [&] {
      Poller poller = std::move(*Poller::create());
      return tcp_connect(*listeners[0], test_identity(), table, 0, options, poller).status();
    });
    Poller poller = std::move(*Poller::create());
    const Status status = tcp_connect(*listeners[1], identity, stale, 1, options, poller).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
    EXPECT_THAT(status.text(), HasSubstr(other_secret ? "wrong secret" : "another generation"));
    EXPECT_EQ(zero.get().code(), StatusCode::kTimedOut);
  }
}

// Rank 2 looks for rank 1 where nobody answers; rank 0 has all of its connections.
TEST(TcpConnectErrors, AllRanksLearnOfAPairThatIsNotConnected) {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  PeerTable table;
  table.generation = 1;
  for (int rank = 0; rank < 3; ++rank) {
    listeners.push_back(std::move(*TcpListener::open({"127.0.0.1"})));
    table.peers.push_back(test_peer(rank));
    table.peers.back().endpoints = listeners.back()->endpoints();
  }
  const auto silent = std::move(*TcpListener::open({"127.0.0.1"}));
  PeerTable misled = table;
  misled.peers[1].endpoints = silent->endpoints();
  const TcpOptions options{1, {"127.0.0.1"}, 600ms};
  const auto connect = [&](int rank) {
    return std::async(std::launch::async, [&, rank] {
      Poller poller = std::move(*Poller::create());
      const auto at = static_cast<std::size_t>(rank);
      return tcp_connect(*listeners[at], test_identity(), rank == 2 ? misled : table, rank, options,
                         poller)
          .status();
    });
  };
  std::future<Status> all[] = {connect(0), connect(1), connect(2)};
  for (std::future<Status>& one : all) {
    const Status status = one.get();
    EXPECT_EQ(status.code(), StatusCode::kTimedOut) << status.to_string();
    EXPECT_THAT(status.text(),
                AllOf(HasSubstr("rank 1"), HasSubstr("rank 2"), HasSubstr("127.0.0.1:")));
  }
}

TEST(TcpConnectErrors, ListensOnlyWhereTold) {
  auto listener = TcpListener::open({"127.0.0.1", "127.0.0.2"});
  ASSERT_TRUE(listener.is_ok());
  const std::vector<std::string> endpoints = (*listener)->endpoints();
  ASSERT_EQ(endpoints.size(), 2U);
  EXPECT_EQ(endpoints[0].rfind("127.0.0.1:", 0), 0U);
  EXPECT_EQ(endpoints[1].rfind("127.0.0.2:", 0), 0U);
  for (const char* address : {"somewhere", "203.0.113.7", ""}) {
    const auto bad = TcpListener::open({address});
    EXPECT_EQ(bad.status().code(), StatusCode::kInvalidArgument) << address;
  }
  EXPECT_EQ(TcpListener::open({}).status().code(), StatusCode::kInvalidArgument);
}

TEST(Links, ControlIsBetweenMembersLeadersAndTheRootOnly) {
  PeerTable table;
  for (const int host : {0, 0, 1, 1, 2}) {
    table.peers.push_back(test_peer(static_cast<int>(table.peers.size()), host));
  }
  const std::vector<std::pair<int, int>> linked = {{0, 1}, {0, 2}, {2, 3}, {0, 4}};
  for (int a = 0; a < 5; ++a) {
    EXPECT_EQ(leader_of(table, a), a == 4 ? 4 : a / 2 * 2);
    for (int b = 0; b < 5; ++b) {
      const bool due = std::find(linked.begin(), linked.end(),
                                 std::pair(std::min(a, b), std::max(a, b))) != linked.end();
      EXPECT_EQ(have_control(table, a, b), due) << a << " " << b;
    }
  }
  EXPECT_EQ(links_of(table, 0, 2).size(), 4U * 2 + 3);
  EXPECT_EQ(links_of(table, 3, 1).size(), 4U + 1);
}

}  // namespace
}  // namespace kolo::internal
