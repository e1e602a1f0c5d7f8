#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <dirent.h>
#include <algorithm>

#include "base/unique_fd.h"
#include "tests/unit/transport/loopback.h"
#include "transport/handshake.h"
#include "transport/net/address.h"
#include "transport/net/refusals.h"
#include "transport/rendezvous/codec.h"
#include "transport/rendezvous/front_end.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Nanos now() { return SteadyClock().now(); }

std::unique_ptr<RendezvousServer> serve(int size, Nanos start_timeout = 20s) {
  auto server = RendezvousServer::start("127.0.0.1:0", size, test_identity(), start_timeout);
  EXPECT_TRUE(server.is_ok()) << server.status().to_string();
  return std::move(*server);
}

using Joined = Result<std::unique_ptr<RendezvousClient>>;

std::future<Joined> join_later(const std::string& endpoint, int rank, int size, Nanos limit = 20s,
                               JobIdentity identity = test_identity()) {
  return std::async(std::launch::async, [=] {
    return RendezvousClient::join(endpoint, identity, size, test_peer(rank), limit);
  });
}

// A plain connection to the endpoint.
UniqueFd knock(const std::string& endpoint) {
  const HostPort address = *parse_host_port(endpoint);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(address.port);
  ::inet_pton(AF_INET, address.host.c_str(), &to.sin_addr);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return fd;
}

bool closed_within(const UniqueFd& fd, int ms) {
  const Nanos start = now();
  while (now() - start < std::chrono::milliseconds(ms)) {
    pollfd wait{fd.get(), POLLIN, 0};
    if (::poll(&wait, 1, 20) <= 0) continue;
    char bytes[256];
    if (::recv(fd.get(), bytes, sizeof bytes, 0) <= 0) return true;
  }
  return false;
}

std::ptrdiff_t open_descriptors() {
  std::ptrdiff_t count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

TEST(Rendezvous, AllRanksGetTheSameTable) {
  const auto server = serve(4);
  std::vector<std::future<Joined>> joins;
  for (int rank = 0; rank < 4; ++rank) joins.push_back(join_later(server->endpoint(), rank, 4));
  for (auto& join : joins) {
    const Joined client = join.get();
    ASSERT_TRUE(client.is_ok()) << client.status().to_string();
    const PeerTable& table = (*client)->table();
    EXPECT_EQ(table.generation, 1U);
    ASSERT_EQ(table.peers.size(), 4U);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(table.peers[static_cast<std::size_t>(rank)].pid, 1000 + rank);
    }
  }
}

TEST(Rendezvous, ServerNamesMissingRanksAndItsAddress) {
  const auto server = serve(4, 300ms);
  const Nanos start = now();
  auto zero = join_later(server->endpoint(), 0, 4, 300ms);
  auto two = join_later(server->endpoint(), 2, 4, 300ms);
  for (auto* join : {&zero, &two}) {
    const Joined client = join->get();
    EXPECT_EQ(client.status().code(), StatusCode::kTimedOut);
    EXPECT_THAT(client.status().text(),
                AllOf(HasSubstr("missing ranks 1, 3"), HasSubstr(server->endpoint())));
  }
  EXPECT_GE(now() - start, 300ms);
  EXPECT_LT(now() - start, 5s);
}

TEST(Rendezvous, EachRanksOwnLimitNamesTheMissing) {
  const auto server = serve(3);
  auto patient = join_later(server->endpoint(), 0, 3);
  const Joined hasty = join_later(server->endpoint(), 1, 3, 300ms).get();
  for (const Status& status : {hasty.status(), patient.get().status()}) {
    EXPECT_EQ(status.code(), StatusCode::kTimedOut);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("missing rank 2 of 3"),
                                     HasSubstr("300 ms by KOLO_START_TIMEOUT_MS of rank 1")));
  }
}

TEST(Rendezvous, WhoCannotTakePartTellsTheOthersAtOnce) {
  const auto server = serve(2);
  auto zero = join_later(server->endpoint(), 0, 2);
  RendezvousClient::decline(server->endpoint(), test_identity(), 2, test_peer(1),
                            resource_error("no socket is left"));
  const Joined client = zero.get();
  EXPECT_EQ(client.status().code(), StatusCode::kPeerLost);
  EXPECT_THAT(client.status().text(),
              AllOf(HasSubstr("rank 1"), HasSubstr("cannot take part: no socket is left")));
}

TEST(Rendezvous, ClientGivesUpByItself) {
  const Nanos start = now();
  std::string endpoint;
  {
    endpoint = serve(1)->endpoint();  // closed again: nobody listens there
  }
  const Joined client = join_later(endpoint, 1, 2, 200ms).get();
  EXPECT_EQ(client.status().code(), StatusCode::kTimedOut);
  EXPECT_THAT(client.status().text(),
              AllOf(HasSubstr(endpoint), HasSubstr("refused"), HasSubstr("rank 1")));
  EXPECT_GE(now() - start, 200ms);
  EXPECT_LT(now() - start, 5s);
}

TEST(Rendezvous, AnEarlyClientWaitsForTheServer) {
  const std::string endpoint = serve(1)->endpoint();
  auto join = join_later(endpoint, 0, 1);
  std::this_thread::sleep_for(100ms);
  const auto server = RendezvousServer::start(endpoint, 1, test_identity(), 20s);
  ASSERT_TRUE(server.is_ok()) << server.status().to_string();
  EXPECT_TRUE(join.get().is_ok());
}

TEST(Rendezvous, RefusesARankTwiceAtOnce) {
  const auto server = serve(2);
  auto first = join_later(server->endpoint(), 0, 2);
  std::this_thread::sleep_for(50ms);
  const Nanos start = now();
  const Joined second = join_later(server->endpoint(), 0, 2).get();
  EXPECT_EQ(second.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(second.status().text(), HasSubstr("rank already present"));
  EXPECT_LT(now() - start, 5s);
  EXPECT_TRUE(join_later(server->endpoint(), 1, 2).get().is_ok());
  EXPECT_TRUE(first.get().is_ok());
}

TEST(Rendezvous, WrongSecretOtherJobOtherSizeAreRefusedAtOnce) {
  const auto server = serve(2);
  const Nanos start = now();
  JobIdentity wrong = test_identity();
  wrong.secret = "another secret of some length";
  Joined client = join_later(server->endpoint(), 0, 2, 20s, wrong).get();
  EXPECT_EQ(client.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(client.status().text(),
              AllOf(HasSubstr("wrong secret"), HasSubstr(server->endpoint())));
  wrong = test_identity();
  wrong.job = "another job";
  client = join_later(server->endpoint(), 0, 2, 20s, wrong).get();
  EXPECT_THAT(client.status().text(), HasSubstr("other job"));
  auto right = join_later(server->endpoint(), 1, 2);
  std::this_thread::sleep_for(50ms);
  client = join_later(server->endpoint(), 0, 3).get();
  EXPECT_EQ(client.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(client.status().text(), HasSubstr("KOLO_SIZE"));
  EXPECT_EQ(right.get().status().text(), client.status().text()) << "the others are told as well";
  wrong = test_identity();
  wrong.secret = "short";
  EXPECT_EQ(join_later(server->endpoint(), 0, 2, 20s, wrong).get().status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_LT(now() - start, 5s);
}

TEST(Rendezvous, S27OtherProtocolFailsBothSoonNamingBoth) {
  const auto server = serve(2);
  const Nanos start = now();
  auto zero = join_later(server->endpoint(), 0, 2);
  JobIdentity newer = test_identity();
  newer.protocol = kProtocolVersion + 1;
  auto one = join_later(server->endpoint(), 1, 2, 20s, newer);
  for (auto* join : {&zero, &one}) {
    const Joined client = join->get();
    EXPECT_EQ(client.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(client.status().text(),
                AllOf(HasSubstr("rank 1"), HasSubstr("protocol 2"), HasSubstr("speak 1")));
  }
  EXPECT_LT(now() - start, 1s);
}

TEST(Rendezvous, ManyRoundsLeaveNothingBehind) {
  const auto server = serve(3);
  std::ptrdiff_t after_first = 0;
  for (std::uint64_t round = 1; round <= 30; ++round) {
    std::vector<std::future<Joined>> joins;
    for (int rank = 0; rank < 3; ++rank) joins.push_back(join_later(server->endpoint(), rank, 3));
    std::vector<Joined> clients;
    for (auto& join : joins) clients.push_back(join.get());
    for (const Joined& client : clients) {
      ASSERT_TRUE(client.is_ok()) << client.status().to_string();
      EXPECT_EQ((*client)->table().generation, round);
    }
    clients.clear();
    if (round == 1) after_first = open_descriptors();
  }
  // The server notices the last leave a moment later.
  for (int i = 0; i < 100 && open_descriptors() > after_first; ++i) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_LE(open_descriptors(), after_first);
}

TEST(Rendezvous, StrangersAreClosedAndDoNoHarm) {
  const auto server = serve(2);
  const std::vector<std::string> openings = {
      "GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: a stranger with a long enough request\r\n"
      "Accept: everything, so that it is over a hundred bytes\r\n\r\n",
      "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n" + std::string(100, 's'),
      std::string(4096, '\xff'), std::string(4096, '\0')};
  std::vector<UniqueFd> strangers;
  for (const std::string& opening : openings) {
    strangers.push_back(knock(server->endpoint()));
    ::send(strangers.back().get(), opening.data(), opening.size(), MSG_NOSIGNAL);
  }
  for (const UniqueFd& stranger : strangers) EXPECT_TRUE(closed_within(stranger, 1000));

  const UniqueFd silent = knock(server->endpoint());
  const UniqueFd brief = knock(server->endpoint());
  ::send(brief.get(), "SSH", 3, MSG_NOSIGNAL);
  EXPECT_TRUE(closed_within(brief, 500)) << "three bytes show that it is no rank";
  const UniqueFd begun = knock(server->endpoint());
  ::send(begun.get(), "KOLO", 4, MSG_NOSIGNAL);
  auto zero = join_later(server->endpoint(), 0, 2);
  auto one = join_later(server->endpoint(), 1, 2);
  EXPECT_TRUE(zero.get().is_ok());
  EXPECT_TRUE(one.get().is_ok());
  EXPECT_TRUE(closed_within(silent, 1500));
  EXPECT_TRUE(closed_within(begun, 1500));
}

TEST(Rendezvous, AProofThatStopsHalfWayIsNotWaitedForLong) {
  const auto server = serve(2);
  const UniqueFd stranger = knock(server->endpoint());
  Handshake hello = Handshake::connector(
      "test job", "not the secret, but long enough",
      {kProtocolVersion, HandshakeRole::kRendezvous, 0, 1, -1, 0}, random_digest());
  const std::string out = hello.take_output();
  ::send(stranger.get(), out.data(), out.size(), MSG_NOSIGNAL);
  EXPECT_FALSE(closed_within(stranger, 1200)) << "a rank may take this long";
  EXPECT_TRUE(closed_within(stranger, 2000));
}

TEST(Rendezvous, HundredsOfIdleStrangersKeepNobodyOut) {
  const auto server = serve(2);
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(knock(server->endpoint()));
  const Nanos start = now();
  auto zero = join_later(server->endpoint(), 0, 2);
  auto one = join_later(server->endpoint(), 1, 2);
  for (int i = 0; i < 100; ++i) idle.push_back(knock(server->endpoint()));
  EXPECT_TRUE(zero.get().is_ok());
  EXPECT_TRUE(one.get().is_ok());
  EXPECT_LT(now() - start, 1s);
}

TEST(Rendezvous, RefusalsAreOneLinePerSourceWithTheirNumber) {
  struct Quiet : MeetingBackend {
    void join(std::uint64_t, std::string) override {}
    void left(std::uint64_t) override {}
    void warn(const std::string& line) override { lines.push_back(line); }
    std::vector<std::string> lines;
  } backend;
  {
    const auto front = RendezvousFrontEnd::start("127.0.0.1:0", test_identity(), backend);
    ASSERT_TRUE(front.is_ok());
    for (int i = 0; i < 50; ++i) {
      const UniqueFd stranger = knock((*front)->endpoint());
      ::send(stranger.get(), "GET /", 5, MSG_NOSIGNAL);
      EXPECT_TRUE(closed_within(stranger, 500));
    }
    const Nanos limit = now() + 2s;
    while (now() < limit) std::this_thread::sleep_for(10ms);
  }
  ASSERT_EQ(backend.lines.size(), 1U);
  EXPECT_THAT(backend.lines[0],
              AllOf(HasSubstr("50 connection"), HasSubstr("127.0.0.1"), HasSubstr("handshake")));
}

TEST(Rendezvous, RefusalsAreCountedByKind) {
  const auto server = serve(2);
  const UniqueFd other = knock(server->endpoint());
  ::send(other.get(), "GET /", 5, MSG_NOSIGNAL);
  EXPECT_TRUE(closed_within(other, 500));
  {
    const UniqueFd brief = knock(server->endpoint());
    ::send(brief.get(), "KOLO", 4, MSG_NOSIGNAL);
  }
  JobIdentity wrong = test_identity();
  wrong.secret = "another secret of some length";
  EXPECT_FALSE(join_later(server->endpoint(), 0, 2, 20s, wrong).get().is_ok());
  wrong = test_identity();
  wrong.job = "another job";
  EXPECT_FALSE(join_later(server->endpoint(), 0, 2, 20s, wrong).get().is_ok());
  const Nanos limit = now() + 5s;
  while (server->refused().total() < 4 && now() < limit) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(server->refused().json(),
            "{\"not_kolo\":1,\"other_job\":1,\"wrong_secret\":1,\"unwanted\":0,\"late\":0,"
            "\"closed\":1,\"pushed_out\":0}");
}

TEST(RefusalLog, SpeaksOncePerSourceAndTenSeconds) {
  RefusalLog log;
  log.note("a", "first", 0s);
  log.note("b", "other", 0s);
  EXPECT_TRUE(log.take(100ms).empty());
  log.note("a", "second", 200ms);
  const auto lines = log.take(500ms);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("2 connection"), HasSubstr("from a "),
                              HasSubstr("the last: second")));
  for (int i = 0; i < 1000; ++i) log.note("a", "flood", 1s + i * 1ms);
  EXPECT_TRUE(log.take(10s).empty());
  const auto later = log.take(10500ms);
  ASSERT_EQ(later.size(), 1U);
  EXPECT_THAT(later[0], HasSubstr("1000 connection"));
  EXPECT_TRUE(log.take(30s).empty());
  EXPECT_TRUE(log.empty()) << "what is quiet is forgotten";
}

TEST(RefusalLog, ManySourcesAreBounded) {
  RefusalLog log;
  for (int i = 0; i < 10000; ++i) log.note("10.0." + std::to_string(i), "no", 0s);
  const auto lines = log.take(1s);
  EXPECT_EQ(lines.size(), RefusalLog::kMaxSources + 1);
  log.note("a new one", "no", 2s);
  log.note("another", "no", 2s);
  EXPECT_TRUE(log.take_last().empty()) << "counted with the others";
}

TEST(Rendezvous, BadAddressesAreNamed) {
  for (const char* address : {"nonsense", "127.0.0.1", "127.0.0.1:99999", "::1:5", "name:1:2"}) {
    const auto server = RendezvousServer::start(address, 2, test_identity(), 1s);
    EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(server.status().text(), HasSubstr(address));
  }
  const auto first = serve(2);
  const auto second = RendezvousServer::start(first->endpoint(), 2, test_identity(), 1s);
  EXPECT_EQ(second.status().code(), StatusCode::kResource);
  EXPECT_THAT(second.status().text(), AllOf(HasSubstr(first->endpoint()), HasSubstr("in use")));
  for (const int size : {0, -1, kMaxJobSize + 1}) {
    EXPECT_EQ(RendezvousServer::start("127.0.0.1:0", size, test_identity(), 1s).status().code(),
              StatusCode::kInvalidArgument);
  }
}

// What ranks learn of each other while they connect: who was the first to leave, and nothing of
// those that leave because of it.
TEST(Rendezvous, TellsThoseThatConnectWhoWasLostFirst) {
  auto server = serve(3);
  std::vector<std::future<Joined>> joining;
  for (int rank = 0; rank < 3; ++rank) joining.push_back(join_later(server->endpoint(), rank, 3));
  std::vector<std::unique_ptr<RendezvousClient>> clients;
  for (auto& joined : joining) clients.push_back(std::move(*joined.get()));
  const Status broken = peer_lost("rank 2 is lost: its connection ended");
  EXPECT_TRUE(clients[0]->lost().is_ok());
  EXPECT_EQ(cause_of(broken, clients[0].get()), broken);
  clients[1].reset();
  const Status lost = clients[2]->lost(20s);
  EXPECT_EQ(lost.code(), StatusCode::kPeerLost);
  EXPECT_THAT(lost.text(), AllOf(HasSubstr("rank 1 (host host-0"), HasSubstr("kolo_init")));
  clients[2].reset();
  EXPECT_EQ(clients[0]->lost(20s), lost);
  pollfd news{clients[0]->descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&news, 1, 0), 1);  // for whoever looks next
  EXPECT_EQ(cause_of(broken, clients[0].get()), lost);
  EXPECT_EQ(cause_of(broken, nullptr), broken);
  EXPECT_EQ(cause_of(resource_error("of its own"), clients[0].get()).code(), StatusCode::kResource);
}

TEST(Rendezvous, IsLostWithWhoServesIt) {
  auto server = serve(1);
  const Joined client = join_later(server->endpoint(), 0, 1).get();
  ASSERT_TRUE(client.is_ok());
  server.reset();
  EXPECT_THAT((*client)->lost(20s).text(), HasSubstr("kolorun is lost"));
}

// A relay as kolorun's agents make it: joins go elsewhere, answers come from there.
TEST(RendezvousFrontEnd, HandsJoinsToItsBackendAndDeliversAnswers) {
  struct Relay : MeetingBackend {
    void join(std::uint64_t connection, std::string bytes) override {
      joined.set_value({connection, std::move(bytes)});
    }
    void harmed(std::uint64_t connection, std::string bytes) override {  // once
      hurt.set_value({connection, std::move(bytes)});
    }
    void left(std::uint64_t connection) override { gone.set_value(connection); }
    void alarm() override { rang.set_value(); }
    std::promise<std::pair<std::uint64_t, std::string>> joined;
    std::promise<std::pair<std::uint64_t, std::string>> hurt;
    std::promise<std::uint64_t> gone;
    std::promise<void> rang;
  } relay;
  const auto front = RendezvousFrontEnd::start("127.0.0.1:0", test_identity(), relay);
  ASSERT_TRUE(front.is_ok());
  auto client = join_later((*front)->endpoint(), 0, 1);
  const auto [connection, bytes] = relay.joined.get_future().get();
  Meeting meeting(1);
  const auto answers = meeting.join(*decode_join(connection, bytes));
  ASSERT_EQ(answers.size(), 1U);
  (*front)->deliver(12345, "to nobody");
  (*front)->deliver(answers[0].connection, encode_answer(answers[0]));
  {
    const Joined made = client.get();
    ASSERT_TRUE(made.is_ok());
    EXPECT_EQ((*made)->table().peers.size(), 1U);
    (*made)->tell_harmed({0, "it is silent"});
    (*made)->tell_harmed({-1, "more"});
  }
  EXPECT_EQ(relay.gone.get_future().get(), connection);
  auto hurt = relay.hurt.get_future();  // before it was gone
  ASSERT_EQ(hurt.wait_for(0s), std::future_status::ready);
  const auto [harmed, harm] = hurt.get();
  EXPECT_EQ(harmed, connection);
  EXPECT_EQ(*decode_harm(harm), (Harm{0, "it is silent"}));
  (*front)->set_alarm(1ms);
  EXPECT_EQ(relay.rang.get_future().wait_for(10s), std::future_status::ready);
}

}  // namespace
}  // namespace kolo::internal
