// Ranks in containers: other mount, pid and network namespaces, and a /dev/shm that is of no use.
#include <sched.h>
#include <sys/mount.h>

#include <cstring>

#include "tests/conformance/window/processes.h"
#include "tests/conformance/window/shm_meet.h"
#include "transport/arena.h"

namespace kolo::internal {
namespace {

// In a child, as the test itself must stay where it is.
bool may_unshare(int flags) {
  Child child([flags] { return ::unshare(flags) == 0; });
  return child.wait() == 0;
}

#define SKIP_UNLESS_PERMITTED(flags) \
  if (!may_unshare(flags)) GTEST_SKIP() << "making namespaces is not permitted here"

// Meets, writes 16 MiB that the others check, and waits for their marks.
bool share_with_all(Window& window) {
  constexpr std::size_t kBytes = 16 << 20;
  if (!window.carve(4096)) return false;
  Arena arena(window);
  const Result<void*> memory = arena.allocate(kBytes);
  if (!memory) return false;
  std::memset(*memory, window.rank() + 1, kBytes);
  window.own_word<std::uint64_t>(Window::kHeaderBytes).store(*arena.offset_of(*memory, kBytes));
  for (int peer = 0; peer < window.size(); ++peer) {
    const auto& place = window.word<std::uint64_t>(peer, Window::kHeaderBytes);
    if (!wait_until([&] { return place.load() != 0; })) return false;
    for (std::size_t i = 0; i < kBytes; i += 4096) {
      if (window.of(peer)[place.load() + i] != static_cast<std::byte>(peer + 1)) return false;
    }
  }
  window.own_word<std::uint64_t>(Window::kHeaderBytes + 8).store(1);
  for (int peer = 0; peer < window.size(); ++peer) {
    const auto& done = window.word<std::uint64_t>(peer, Window::kHeaderBytes + 8);
    if (!wait_until([&] { return done.load() == 1; })) return false;
  }
  return true;
}

bool meet_and_share(int rank, int size, const std::string& place) {
  MetWindow window = meet_shm(shm_options(rank, size, place, 64 << 20));
  EXPECT_TRUE(window.is_ok()) << window.status().to_string();
  return window.is_ok() && share_with_all(**window);
}

TEST(ShmNamespaces, MountAndPidNamespacesDoNotMatter) {
  SKIP_UNLESS_PERMITTED(CLONE_NEWNS | CLONE_NEWPID);
  const std::string place = fresh_place();
  std::vector<Child> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.emplace_back([&, rank] {
      if (rank > 0 && ::unshare(CLONE_NEWNS | CLONE_NEWPID) != 0) return false;
      Child inside([&] {  // the first process of its namespace, like that of a container
        EXPECT_EQ(::getpid() == 1, rank > 0);
        return meet_and_share(rank, 3, place);
      });
      return inside.wait() == 0;
    });
  }
  for (Child& child : children) EXPECT_EQ(child.wait(), 0);
}

TEST(ShmNamespaces, DeathIsSeenAcrossPidNamespaces) {
  SKIP_UNLESS_PERMITTED(CLONE_NEWPID);
  const std::string place = fresh_place();
  Board board;
  Child watcher([&] {
    MetWindow window = meet_shm(shm_options(0, 2, place));
    if (!window) return false;
    board[0].stage.store(1);
    return wait_until([&] { return (*window)->lost() == 1; });
  });
  Child victim([&] {
    if (::unshare(CLONE_NEWPID) != 0) return false;
    Child inside([&] {
      MetWindow window = meet_shm(shm_options(1, 2, place));
      board[1].stage.store(1);
      ::pause();
      return window.is_ok();
    });
    if (!board.wait_all(2, 1)) return false;
    inside.kill(SIGKILL);
    return inside.wait() == -SIGKILL;
  });
  EXPECT_EQ(victim.wait(), 0);
  EXPECT_EQ(watcher.wait(), 0);
}

TEST(ShmNamespaces, RanksInOtherNetworkNamespacesDoNotMeet) {
  SKIP_UNLESS_PERMITTED(CLONE_NEWNET);
  const std::string place = fresh_place();
  Board board;
  std::vector<Child> children;
  const Nanos start = now_of_all();
  for (int rank = 0; rank < 3; ++rank) {
    children.emplace_back([&, rank] {
      if (rank == 2 && ::unshare(CLONE_NEWNET) != 0) return false;
      ShmOptions options = shm_options(rank, 3, place);
      options.quiet = 500ms;
      board[rank].answer(meet_shm(options).status());
      return true;
    });
  }
  for (Child& child : children) EXPECT_EQ(child.wait(), 0);
  EXPECT_LT(now_of_all() - start, 5s);
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(board[rank].code.load(), static_cast<int>(StatusCode::kTimedOut));
    EXPECT_NE(std::string(board[rank].text.data()).find("network namespace"), std::string::npos);
  }
}

void share_with_dev_shm(const char* options, unsigned long flags) {
  const std::string place = fresh_place();
  std::vector<Child> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.emplace_back([&, rank] {
      if (::unshare(CLONE_NEWNS) != 0 ||
          ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount("tmpfs", "/dev/shm", "tmpfs", flags, options) != 0) {
        return false;
      }
      return meet_and_share(rank, 2, place);
    });
  }
  for (Child& child : children) EXPECT_EQ(child.wait(), 0);
}

TEST(ShmNamespaces, ASmallDevShmDoesNotMatter) {
  SKIP_UNLESS_PERMITTED(CLONE_NEWNS);
  share_with_dev_shm("size=1m", 0);
}

TEST(ShmNamespaces, AReadOnlyDevShmDoesNotMatter) {
  SKIP_UNLESS_PERMITTED(CLONE_NEWNS);
  share_with_dev_shm("size=1m", MS_RDONLY);
}

}  // namespace
}  // namespace kolo::internal
