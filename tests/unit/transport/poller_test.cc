#include "transport/poller.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/unique_fd.h"

namespace kolo::internal {
namespace {

struct SocketPair {
  SocketPair() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
    near.reset(fds[0]);
    far.reset(fds[1]);
  }
  void send() const { EXPECT_EQ(::send(far.get(), "x", 1, MSG_NOSIGNAL), 1); }
  UniqueFd near, far;
};

Poller make_poller() {
  Result<Poller> poller = Poller::create();
  EXPECT_TRUE(poller.is_ok());
  return std::move(*poller);
}

Nanos elapsed(Nanos since) { return SteadyClock().now() - since; }

TEST(Poller, NothingHappensNothingIsSeen) {
  Poller poller = make_poller();
  EXPECT_FALSE(poller.poll());
  const Nanos start = SteadyClock().now();
  EXPECT_FALSE(poller.wait(3ms));
  EXPECT_GE(elapsed(start), 3ms);
}

TEST(Poller, WakeBeforeSleepIsKept) {
  Poller poller = make_poller();
  poller.wake();
  EXPECT_TRUE(poller.poll());
  EXPECT_FALSE(poller.poll());
  poller.wake();
  EXPECT_TRUE(poller.wait(10s));
  EXPECT_FALSE(poller.wait(1ms));
  poller.wake();
  const Nanos start = SteadyClock().now();
  poller.wait_background(10s);
  EXPECT_LT(elapsed(start), 5s);
}

TEST(Poller, SocketEventsAreSeenOncePerEdge) {
  Poller poller = make_poller();
  SocketPair pair;
  ASSERT_TRUE(poller.add(pair.near.get()).is_ok());
  EXPECT_TRUE(poller.poll());  // writable
  EXPECT_FALSE(poller.poll());
  pair.send();
  EXPECT_TRUE(poller.wait(10s));
  EXPECT_FALSE(poller.poll());  // unread, but the edge has been told
  pair.send();
  EXPECT_TRUE(poller.poll());
  pair.far.reset();
  EXPECT_TRUE(poller.wait(10s));  // the end of the stream is an event, too
  poller.remove(pair.near.get());
  EXPECT_FALSE(poller.poll());
}

TEST(Poller, BackgroundSeesSocketsOnlyWhileArmedAndConsumesNothing) {
  Poller poller = make_poller();
  SocketPair pair;
  ASSERT_TRUE(poller.add(pair.near.get()).is_ok());
  poller.poll();
  pair.send();
  Nanos start = SteadyClock().now();
  poller.wait_background(20ms);
  EXPECT_GE(elapsed(start), 20ms);
  poller.arm();
  start = SteadyClock().now();
  poller.wait_background(10s);
  EXPECT_LT(elapsed(start), 5s);
  EXPECT_TRUE(poller.poll());  // still there for the driver
  start = SteadyClock().now();
  poller.wait_background(20ms);
  EXPECT_GE(elapsed(start), 20ms);
  pair.send();
  poller.disarm();
  start = SteadyClock().now();
  poller.wait_background(20ms);
  EXPECT_GE(elapsed(start), 20ms);
}

TEST(Poller, ArmingWakesASleepingBackgroundThread) {
  Poller poller = make_poller();
  SocketPair pair;
  ASSERT_TRUE(poller.add(pair.near.get()).is_ok());
  poller.poll();
  pair.send();
  std::atomic<bool> awake{false};
  std::thread background([&] {
    poller.wait_background(30s);
    awake = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(awake);
  poller.arm();
  background.join();
  EXPECT_TRUE(awake);
}

// Two threads hand a token back and forth through sleep and wake; a lost wake-up would show as a
// sleep of the full limit.
void ping_pong(bool background_side) {
  Poller poller = make_poller();
  Poller answer = make_poller();
  std::atomic<int> token{0};
  constexpr int kRounds = 20000;
  constexpr Nanos kLimit = 20s;
  const Nanos start = SteadyClock().now();
  std::thread other([&] {
    for (int round = 1; round < kRounds; round += 2) {
      while (token != round) {
        if (background_side) {
          poller.wait_background(kLimit);
        } else {
          poller.wait(kLimit);
        }
      }
      token = round + 1;
      answer.wake();
    }
  });
  for (int round = 0; round < kRounds; round += 2) {
    token = round + 1;
    poller.wake();
    while (token != round + 2) answer.wait(kLimit);
  }
  other.join();
  EXPECT_LT(elapsed(start), kLimit);
}

TEST(Poller, NoWakeUpIsLostByTheDriver) { ping_pong(false); }
TEST(Poller, NoWakeUpIsLostByTheBackgroundThread) { ping_pong(true); }

TEST(Poller, OneWakeRousesBothSleepers) {
  Poller poller = make_poller();
  const Nanos start = SteadyClock().now();
  std::thread background([&] { poller.wait_background(30s); });
  std::thread driver([&] { EXPECT_TRUE(poller.wait(30s)); });
  std::this_thread::sleep_for(20ms);
  poller.wake();
  driver.join();
  background.join();
  EXPECT_LT(elapsed(start), 10s);
}

// Peers of a process that has ended hear so although a child of it, which has forgotten its copies,
// lives on.
TEST(Poller, AForkedChildGivesUpItsCopies) {
  Poller poller = make_poller();
  std::array<SocketPair, 300> pairs;  // whose list is longer than what is read at once
  for (SocketPair& pair : pairs) ASSERT_TRUE(poller.add(pair.near.get()).is_ok());
  SocketPair others, ready, finish;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    poller.close_in_child();
    const bool kept = ::fcntl(others.near.get(), F_GETFD) >= 0;
    ready.send();
    char byte = 0;
    while (::recv(finish.near.get(), &byte, 1, 0) != 1) std::this_thread::sleep_for(1ms);
    ::_exit(kept ? 0 : 1);
  }
  char byte = 0;
  while (::recv(ready.near.get(), &byte, 1, 0) != 1) std::this_thread::sleep_for(1ms);
  for (SocketPair& pair : pairs) {
    EXPECT_GE(::fcntl(pair.near.get(), F_GETFD), 0) << "the parent's own is open";
    poller.remove(pair.near.get());
    pair.near.reset();
    EXPECT_EQ(::recv(pair.far.get(), &byte, 1, 0), 0) << "the end is seen at once";
  }
  finish.send();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace kolo::internal
