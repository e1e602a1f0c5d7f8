// Shared memory between processes: words, bells, protection, and nothing left behind.
#include <fstream>

#include "tests/conformance/window/ping_pong.h"
#include "tests/conformance/window/processes.h"
#include "tests/conformance/window/shm_meet.h"
#include "transport/arena.h"
#include "transport/shm/local_socket.h"

namespace kolo::internal {
namespace {

// Runs `body` as rank 0..size-1 of a fresh place, each a process; all must end well.
void run_ranks(int size, const std::function<bool(Window&)>& body) {
  const std::string place = fresh_place();
  std::vector<Child> children;
  for (int rank = 0; rank < size; ++rank) {
    children.emplace_back([&, rank] {
      MetWindow window = meet_shm(shm_options(rank, size, place));
      EXPECT_TRUE(window.is_ok()) << window.status().to_string();
      return window.is_ok() && (*window)->carve(4096).is_ok() && body(**window);
    });
  }
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(children[static_cast<std::size_t>(rank)].wait(), 0) << "rank " << rank;
  }
}

bool is_served(const std::string& place) {
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (line.find("@" + local_name(place)) != std::string::npos) return true;
  }
  return false;
}

int files_of_kolo() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().string().find("kolo") != std::string::npos) ++count;
  }
  return count;
}

TEST(ShmProcesses, NothingIsMissedInPingPong) {
  run_ranks(2, [](Window& window) {
    ping_pong(window, kPingPongs, 1);
    return true;
  });
}

TEST(ShmProcesses, NothingIsMissedByASleeper) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_ranks(2 + static_cast<int>(seed),
              [seed](Window& window) { return pass_the_token(window, 2000, seed); });
  }
}

TEST(ShmProcesses, PeersReadArenaMemory) {
  run_ranks(3, [](Window& window) {
    Arena arena(window);
    const Result<void*> memory = arena.allocate(200'000);
    if (!memory) return false;
    const auto fill = static_cast<unsigned char>(window.rank() + 1);
    std::fill_n(static_cast<unsigned char*>(*memory), 200'000, fill);
    const std::uint64_t offset = *arena.offset_of(*memory, 200'000);
    auto& mine = window.own_word<std::uint64_t>(Window::kHeaderBytes);
    auto& done = window.own_word<std::uint64_t>(Window::kHeaderBytes + kCacheLineBytes);
    mine.store(offset);
    bool right = true;
    for (int peer = 0; peer < window.size(); ++peer) {
      const auto& theirs = window.word<std::uint64_t>(peer, Window::kHeaderBytes);
      if (!wait_until([&] { return theirs.load() != 0; })) return false;
      for (std::size_t i = 0; i < 200'000; ++i) {
        right = right && window.of(peer)[theirs.load() + i] == static_cast<std::byte>(peer + 1);
      }
    }
    done.store(1);
    for (int peer = 0; peer < window.size(); ++peer) {
      const auto& theirs = window.word<std::uint64_t>(peer, Window::kHeaderBytes + kCacheLineBytes);
      if (!wait_until([&] { return theirs.load() == 1; })) return false;
    }
    return right;
  });
}

TEST(ShmProcesses, NobodyCanWriteAPeersMemory) {
  const std::string place = fresh_place();
  Board board;
  Child writer([&] {
    MetWindow window = meet_shm(shm_options(0, 2, place));
    if (!window) return false;
    auto* page = const_cast<std::byte*>((*window)->of(1));
    // Neither may it be made writable.
    if (::mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0) return false;
    board[0].stage.store(1);
    std::signal(SIGSEGV, SIG_DFL);  // the sanitizers' handlers would hide it
    *reinterpret_cast<volatile char*>(page) = 1;
    return true;
  });
  Child owner([&] {
    MetWindow window = meet_shm(shm_options(1, 2, place));
    return window.is_ok() && wait_until([&] { return (*window)->lost() == 0; });
  });
  EXPECT_EQ(writer.wait(), -SIGSEGV);
  EXPECT_EQ(board[0].stage.load(), 1);
  EXPECT_EQ(owner.wait(), 0);
}

TEST(ShmProcesses, NothingIsLeftAfterSigkill) {
  const std::string met = fresh_place();
  const std::string meeting = fresh_place();
  Board board;
  std::vector<Child> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.emplace_back([&, rank] {
      MetWindow window = meet_shm(shm_options(rank, 3, met));
      if (!window || !(*window)->carve(1 << 19).is_ok()) return false;
      board[rank].stage.store(1);
      if (rank == 0) return meet_shm(shm_options(0, 2, meeting)).is_ok();
      ::pause();
      return false;
    });
  }
  ASSERT_TRUE(board.wait_all(3, 1));
  EXPECT_TRUE(wait_until([&] { return is_served(meeting); }));
  EXPECT_FALSE(is_served(met)) << "that meeting is over";
  EXPECT_EQ(files_of_kolo(), 0);
  for (Child& child : children) child.kill(SIGKILL);
  for (Child& child : children) EXPECT_EQ(child.wait(), -SIGKILL);
  EXPECT_FALSE(is_served(meeting));
  EXPECT_EQ(files_of_kolo(), 0);
}

TEST(ShmProcesses, WindowsGiveBackTheirDescriptors) {
  const std::string place = fresh_place();
  std::vector<Child> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.emplace_back([&, rank] {
      const int before = count_entries("/proc/self/fd");
      {
        MetWindow window = meet_shm(shm_options(rank, 3, place));
        if (!window) return false;
        // One memory, three bells.
        EXPECT_EQ(count_entries("/proc/self/fd"), before + 4);
      }
      EXPECT_EQ(count_entries("/proc/self/fd"), before);
      ShmOptions lonely = shm_options(rank, 4, place + "|nobody");
      lonely.rank = rank + 1;
      lonely.quiet = 50ms;
      EXPECT_EQ(meet_shm(lonely).status().code(), StatusCode::kTimedOut);
      EXPECT_EQ(count_entries("/proc/self/fd"), before);
      return true;
    });
  }
  for (Child& child : children) EXPECT_EQ(child.wait(), 0);
}

// A forked child neither keeps nor harms anything, even if it destroys its copy of the window.
TEST(ShmProcesses, AForkedChildDoesNotDisturb) {
  run_ranks(2, [](Window& window) {
    if (window.rank() == 0) {
      Child child([&] {
        window.~Window();
        return true;
      });
      EXPECT_EQ(child.wait(), 0);
      Child toucher([&] {
        std::signal(SIGSEGV, SIG_DFL);
        *reinterpret_cast<volatile char*>(window.own() + Window::kHeaderBytes) = 1;
        return true;
      });
      EXPECT_EQ(toucher.wait(), -SIGSEGV);
    }
    ping_pong(window, 1000, 1);
    return window.lost() == -1;
  });
}

}  // namespace
}  // namespace kolo::internal
