// How the ranks of a host meet, and how they do not: with little memory, strangers and absentees.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <fstream>

#include "tests/conformance/window/processes.h"
#include "tests/conformance/window/shm_meet.h"
#include "transport/net/address.h"
#include "transport/rendezvous/rendezvous.h"
#include "transport/shm/local_socket.h"

namespace kolo::internal {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kBytes = 1 << 20;

// Every rank a process; each first does `prepare(rank)`. Answers are on the board.
void meet_in_processes(int size, Board& board, const std::function<bool(int)>& prepare,
                       const std::function<ShmOptions(int)>& options) {
  std::vector<Child> children;
  for (int rank = 0; rank < size; ++rank) {
    children.emplace_back([&, rank] {
      if (!prepare(rank)) return false;
      const Nanos start = now_of_all();
      const MetWindow window = meet_shm(options(rank));
      board[rank].at_ns.store((now_of_all() - start).count());
      board[rank].answer(window.status());
      return wait_until([&] {  // nobody leaves before all have met
        for (int peer = 0; peer < size; ++peer) {
          if (board[peer].code.load() < 0) return false;
        }
        return true;
      });
    });
  }
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(children[static_cast<std::size_t>(rank)].wait(), 0) << "rank " << rank;
  }
}

void expect_all_fail(int size, Board& board, const std::string& text) {
  for (int rank = 0; rank < size; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    EXPECT_EQ(board[rank].code.load(), static_cast<int>(StatusCode::kResource));
    EXPECT_THAT(std::string(board[rank].text.data()), HasSubstr(text));
    EXPECT_LT(board[rank].at_ns.load(), Nanos(4s).count()) << "not by a timeout";
  }
}

struct Refused {
  const char* name;
  long call;
  int error;
  bool shared_maps_only;
};

// Whoever cannot make its segment, all know it at once, with rank and bytes.
TEST(ShmMeeting, WhatOneRankIsRefusedFailsAll) {
  for (const Refused& refused :
       {Refused{"memfd_create", SYS_memfd_create, EMFILE, false},
        Refused{"ftruncate", SYS_ftruncate, EINVAL, false},
        Refused{"fallocate", SYS_fallocate, ENOSPC, false}, Refused{"mmap", SYS_mmap, ENOMEM, true},
        Refused{"eventfd", SYS_eventfd2, ENFILE, false},
        Refused{"robust list", SYS_set_robust_list, ENOSYS, false}}) {
    for (const int poor : {0, 1, 2}) {
      SCOPED_TRACE(std::string(refused.name) + " refused to rank " + std::to_string(poor));
      const std::string place = fresh_place();
      Board board;
      meet_in_processes(
          3, board,
          [&](int rank) {
            return rank != poor || refuse(refused.call, refused.error, refused.shared_maps_only);
          },
          [&](int rank) { return shm_options(rank, 3, place, kBytes); });
      expect_all_fail(3, board, "");
      const std::string text(board[(poor + 1) % 3].text.data());
      if (refused.call == SYS_set_robust_list) {
        EXPECT_THAT(text, HasSubstr("robust"));
        continue;
      }
      EXPECT_THAT(text, HasSubstr("local rank " + std::to_string(poor)));
      if (refused.call == SYS_eventfd2) continue;
      EXPECT_THAT(text, HasSubstr(std::to_string(kBytes) + " bytes"));
    }
  }
}

// Room for its own segment, but not for its peers'.
TEST(ShmMeeting, WithoutAddressSpaceForPeersAllFail) {
  constexpr std::size_t kLarge = std::size_t{1} << 36;
  const std::string place = fresh_place();
  Board board;
  meet_in_processes(
      3, board,
      [](int rank) {
        if (rank != 1) return true;
        std::size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        const rlim_t limit = pages * 4096 + kLarge + kLarge / 2;
        const rlimit space{limit, limit};
        return ::setrlimit(RLIMIT_AS, &space) == 0;
      },
      [&](int rank) { return shm_options(rank, 3, place, kLarge); });
  expect_all_fail(3, board, "on local rank 1");
  EXPECT_THAT(std::string(board[2].text.data()), HasSubstr(std::to_string(kLarge) + " bytes"));
}

TEST(ShmMeeting, ALimitOfFileSizeIsNoSignal) {
  const std::string place = fresh_place();
  Board board;
  meet_in_processes(
      2, board,
      [](int rank) {
        const rlimit limit{kBytes / 2, kBytes / 2};
        return rank != 1 || ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
      },
      [&](int rank) { return shm_options(rank, 2, place, kBytes); });
  expect_all_fail(2, board, "ulimit -f");
}

TEST(ShmMeeting, CarvingWithoutMemoryIsAnErrorAndNoSignal) {
  const std::string place = fresh_place();
  std::vector<Child> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.emplace_back([&, rank] {
      MetWindow window = meet_shm(shm_options(rank, 2, place));
      if (!window || !(*window)->carve(4096).is_ok() || !refuse(SYS_fallocate, ENOSPC)) {
        return false;
      }
      const std::size_t carved = (*window)->carved();
      const Status status = (*window)->carve(123'456).status();
      EXPECT_EQ(status.code(), StatusCode::kResource);
      EXPECT_THAT(status.text(), HasSubstr("126976"));  // in whole pages
      EXPECT_EQ((*window)->carved(), carved);
      return true;
    });
  }
  for (Child& child : children) EXPECT_EQ(child.wait(), 0);
}

TEST(ShmMeeting, MayWaitForEver) {
  const std::string place = fresh_place();
  std::vector<ShmOptions> options{shm_options(0, 2, place), shm_options(1, 2, place)};
  for (ShmOptions& one : options) one.limit = one.quiet = kNever;
  for (const MetWindow& met : meet_in_threads(options)) EXPECT_TRUE(met.is_ok());
}

TEST(ShmMeeting, DifferentSizesAreSaid) {
  const std::string place = fresh_place();
  for (const MetWindow& met :
       meet_in_threads({shm_options(0, 2, place, kBytes), shm_options(1, 2, place, 2 * kBytes)})) {
    EXPECT_EQ(met.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(met.status().text(), HasSubstr("KOLO_SHM_BYTES"));
  }
}

TEST(ShmMeeting, RefusesImpossibleOptions) {
  for (const ShmOptions& options :
       {shm_options(2, 2, "p"), shm_options(-1, 2, "p"), shm_options(0, kBytes, "p"),
        shm_options(0, 0, "p"), shm_options(0, 2, "p", 4096)}) {
    EXPECT_EQ(meet_shm(options).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(ShmMeeting, AnotherSecretIsRefusedAndHarmsNobody) {
  const std::string place = fresh_place();
  ShmOptions liar = shm_options(1, 2, place);
  liar.identity.secret = "another secret of sufficient length";
  std::future<MetWindow> leader =
      std::async(std::launch::async, [&] { return meet_shm(shm_options(0, 2, place)); });
  const Status refused = meet_shm(liar).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.text(), HasSubstr("secret"));
  const MetWindow real = meet_shm(shm_options(1, 2, place));
  EXPECT_TRUE(real.is_ok()) << real.status().to_string();
  EXPECT_TRUE(leader.get().is_ok());
}

TEST(ShmMeeting, AnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  for (const int other : {0, 1}) {
    const std::string place = fresh_place();
    Board board;
    meet_in_processes(
        2, board, [&](int rank) { return rank != other || ::setuid(65534) == 0; },
        [&](int rank) { return shm_options(rank, 2, place); });
    EXPECT_EQ(board[1].code.load(), static_cast<int>(StatusCode::kResource));
    EXPECT_THAT(std::string(board[1].text.data()), HasSubstr("different users"));
    EXPECT_NE(board[0].code.load(), 0);
  }
}

// Strangers who say nothing, or nonsense, and come again.
TEST(ShmMeeting, StrangersDoNotStarveRanks) {
  const std::string place = fresh_place();
  std::atomic<bool> stop{false};
  std::atomic<int> connections{0};
  std::thread strangers([&] {
    std::vector<UniqueFd> sockets;
    for (unsigned i = 0; !stop; ++i) {
      Result<UniqueFd> socket = open_local_socket();
      if (!socket || connect_locally(socket->get(), place) != 0) {
        std::this_thread::sleep_for(100us);
        continue;
      }
      ++connections;
      std::string nonsense(i % 3 == 0 ? 0 : (i % 3 == 1 ? 96 : 5000), 'x');
      (void)::send(socket->get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
      sockets.push_back(std::move(*socket));
      if (sockets.size() > 300) sockets.erase(sockets.begin(), sockets.begin() + 100);
    }
  });
  std::vector<std::future<MetWindow>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      // The strangers come first.
      if (rank > 0) (void)wait_until([&] { return connections > 500; });
      return meet_shm(shm_options(rank, 4, place));
    }));
  }
  for (auto& rank : ranks) {
    const MetWindow met = rank.get();
    EXPECT_TRUE(met.is_ok()) << met.status().to_string();
  }
  stop = true;
  strangers.join();
  EXPECT_GT(connections.load(), 500);
}

TEST(ShmMeeting, AMeetingPlaceNobodyServesIsGivenUpSoon) {
  ShmOptions lonely = shm_options(1, 2, fresh_place());
  lonely.quiet = 200ms;
  Nanos start = now_of_all();
  const Status follower = meet_shm(lonely).status();
  EXPECT_EQ(follower.code(), StatusCode::kTimedOut);
  EXPECT_THAT(follower.text(), HasSubstr("network namespace"));
  EXPECT_LT(now_of_all() - start, 3s);
  lonely.rank = 0;
  start = now_of_all();
  const Status leader = meet_shm(lonely).status();
  EXPECT_EQ(leader.code(), StatusCode::kTimedOut);
  EXPECT_THAT(leader.text(), HasSubstr("local ranks 1 "));
  EXPECT_LT(now_of_all() - start, 3s);
}

TEST(ShmMeeting, WhoMeetsTellsWhoIsAbsent) {
  const std::string place = fresh_place();
  std::vector<ShmOptions> some{shm_options(0, 3, place), shm_options(2, 3, place)};
  for (ShmOptions& one : some) one.quiet = 1s;
  for (const MetWindow& met : meet_in_threads(some)) {
    EXPECT_EQ(met.status().code(), StatusCode::kTimedOut);
    EXPECT_THAT(met.status().text(), HasSubstr("local ranks 1 "));
  }
}

// After its proof, when it sends its share; or after the exchange, when it starts its thread.
TEST(ShmMeeting, ARankThatDiesMeanwhileIsNamed) {
  for (const long call : {SYS_sendmsg, SYS_set_robust_list}) {
    for (const int victim : {0, 2}) {
      SCOPED_TRACE("rank " + std::to_string(victim) + " dies at system call " +
                   std::to_string(call));
      const std::string place = fresh_place();
      Board board;
      std::vector<Child> children;
      for (int rank = 0; rank < 4; ++rank) {
        children.emplace_back([&, rank] {
          if (rank == victim && !die_at(call)) return false;
          const Status status = meet_shm(shm_options(rank, 4, place)).status();
          EXPECT_EQ(status.code(), StatusCode::kPeerLost);
          EXPECT_THAT(status.text(), HasSubstr("local rank " + std::to_string(victim)));
          return true;
        });
      }
      for (int rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(children[static_cast<std::size_t>(rank)].wait(), rank == victim ? -SIGSYS : 0)
            << "rank " << rank;
      }
    }
  }
}

// As ranks meet before they share memory. `board`: the port, as the stage of who is behind them.
Result<std::unique_ptr<RendezvousClient>> meet_at_rendezvous(int rank, int size, Board& board) {
  if (!wait_until([&] { return board[size].stage.load() != 0; })) return timed_out("no port");
  PeerInfo self;
  self.rank = rank;
  self.host = "here";
  const ShmOptions options = shm_options(rank, size, "");
  return RendezvousClient::join("127.0.0.1:" + std::to_string(board[size].stage.load()),
                                options.identity, size, self, 20s);
}

// Before it has come to the place, so that no connection tells: the others do not wait for it, and
// name it whoever of them leaves first because of it.
TEST(ShmMeeting, ARankThatDiesBeforeItComesIsNamedAtOnce) {
  constexpr int kSize = 4;
  for (const auto& [call, victim] :
       {std::pair(SYS_listen, 0), {SYS_connect, 2}, {SYS_memfd_create, 0}}) {
    SCOPED_TRACE("rank " + std::to_string(victim) + " dies at system call " + std::to_string(call));
    const std::string place = fresh_place();
    Board board;
    std::vector<Child> children;
    for (int rank = 0; rank < kSize; ++rank) {
      children.emplace_back([&, rank] {
        auto client = meet_at_rendezvous(rank, kSize, board);
        EXPECT_TRUE(client.is_ok()) << client.status().text();
        if (!client || (rank == victim && !die_at(call))) return false;
        ShmOptions options = shm_options(rank, kSize, place);
        options.watch = client->get();
        options.limit = options.quiet = 50s;
        const Nanos start = now_of_all();
        const Status status = meet_shm(options).status();
        EXPECT_LT(now_of_all() - start, 25s) << "not by a timeout";
        EXPECT_EQ(status.code(), StatusCode::kPeerLost);
        EXPECT_THAT(status.text(), HasSubstr("rank " + std::to_string(victim) + " (host here"));
        EXPECT_THAT(status.text(), HasSubstr("ended during kolo_init"));
        return true;
      });
    }
    const auto server =
        RendezvousServer::start("127.0.0.1:0", kSize, shm_options(0, kSize, place).identity, 20s);
    ASSERT_TRUE(server.is_ok()) << server.status().text();
    board[kSize].stage.store(parse_host_port((*server)->endpoint())->port);
    for (int rank = 0; rank < kSize; ++rank) {
      EXPECT_EQ(children[static_cast<std::size_t>(rank)].wait(), rank == victim ? -SIGSYS : 0)
          << "rank " << rank;
    }
  }
}

}  // namespace
}  // namespace kolo::internal
