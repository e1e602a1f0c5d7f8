// How ranks see each other die: by looking, and asleep.
#include <sys/resource.h>

#include <fstream>

#include "tests/conformance/window/processes.h"
#include "tests/conformance/window/shm_meet.h"
#include "transport/poller.h"

namespace kolo::internal {
namespace {

constexpr Nanos kBound = 2s;  // on the busiest of machines; typical are microseconds

enum class Waits { kSpinning, kAsleep };

// Waits for a death as core does; stores when it was seen and of whom (stage 100 + rank).
bool await_death(Witness& witness, Waits how, Board::Entry& entry) {
  Result<Poller> poller = Poller::create();
  if (!poller || !poller->add(witness.bell())) return false;
  while (poller->poll()) {
  }
  entry.stage.store(1);
  const Nanos end = now_of_all() + 20s;
  int lost = -1;
  unsigned looks = 0;
  while ((lost = witness.lost()) < 0 && now_of_all() < end) {
    if (how == Waits::kAsleep) {
      (void)poller->wait(10s);
    } else if (++looks % 1000 == 0) {
      std::this_thread::yield();
    }
  }
  entry.at_ns.store(now_of_all().count());
  entry.stage.store(100 + lost);
  return lost >= 0;
}

struct Scene {
  int size = 2;
  int victim = 0;
  Waits how = Waits::kSpinning;
  bool only_watch = false;  // they share no data
  std::size_t fat_bytes = 0;
  std::function<bool()> before_meeting = [] { return true; };  // in every rank
  std::function<bool()> victim_does = [] { return true; };     // before it is killed
};

Result<std::unique_ptr<Witness>> meet(const ShmOptions& options, bool only_watch) {
  if (only_watch) return meet_to_watch(options);
  MetWindow window = meet_shm(options);
  if (!window) return window.status();
  return std::unique_ptr<Witness>(*std::move(window));
}

// Kills one rank; all others must see it. Returns the time to the last of them.
Nanos kill_one(const Scene& scene) {
  const std::string place = fresh_place();
  Board board;
  std::vector<Child> children;
  for (int rank = 0; rank < scene.size; ++rank) {
    children.emplace_back([&, rank] {
      if (!scene.before_meeting()) return false;
      const auto witness = meet(shm_options(rank, scene.size, place), scene.only_watch);
      EXPECT_TRUE(witness.is_ok()) << witness.status().to_string();
      if (!witness) return false;
      if (rank != scene.victim) return await_death(**witness, scene.how, board[rank]);
      if (scene.fat_bytes > 0 &&
          ::mmap(nullptr, scene.fat_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) == MAP_FAILED) {
        return false;
      }
      if (!scene.victim_does()) return false;
      board[rank].stage.store(1);
      ::pause();
      return false;
    });
  }
  EXPECT_TRUE(board.wait_all(scene.size, 1));
  std::this_thread::sleep_for(20ms);  // so that sleepers sleep
  const Nanos killed = now_of_all();
  children[static_cast<std::size_t>(scene.victim)].kill(SIGKILL);
  Nanos last{0};
  for (int rank = 0; rank < scene.size; ++rank) {
    if (rank == scene.victim) continue;
    EXPECT_EQ(children[static_cast<std::size_t>(rank)].wait(), 0) << "rank " << rank;
    EXPECT_EQ(board[rank].stage.load(), 100 + scene.victim);
    last = std::max(last, Nanos(board[rank].at_ns.load()) - killed);
  }
  EXPECT_LT(last, kBound);
  return last;
}

void report(const char* what, Scene scene) {
  std::vector<double> micros;
  for (int i = 0; i < 5; ++i) {
    micros.push_back(static_cast<double>(kill_one(scene).count()) / 1e3);
    if (::testing::Test::HasFailure()) return;
  }
  std::sort(micros.begin(), micros.end());
  std::printf("%s: seen after %.0f us (median), %.0f us (slowest of 5)\n", what, micros[2],
              micros[4]);
}

TEST(ShmDeath, ASpinnerSeesIt) {
  report("spinner", {});
  report("spinner, the leader sees", {.victim = 1});
}

TEST(ShmDeath, ASleeperSeesIt) {
  report("sleeper", {.how = Waits::kAsleep});
  report("sleeper, the leader sees", {.victim = 1, .how = Waits::kAsleep});
}

TEST(ShmDeath, AFatVictimIsNoSlower) {
  report("spinner, victim of 256 MiB", {.fat_bytes = 256 << 20});
  report("sleeper, victim of 256 MiB", {.how = Waits::kAsleep, .fat_bytes = 256 << 20});
}

TEST(ShmDeath, EverybodySeesIt) {
  for (int victim = 0; victim < 5; ++victim) {
    kill_one({.size = 5, .victim = victim, .how = Waits::kAsleep});
  }
}

// More ranks than one thread can watch: who sees it tells the others.
TEST(ShmDeath, EverybodyOfManySeesIt) {
  kill_one({.size = 140, .victim = 139, .how = Waits::kAsleep});
}

TEST(ShmDeath, WhoOnlyWatchesSeesItToo) {
  report("spinner that only watches", {.only_watch = true});
  report("sleeper that only watches", {.victim = 1, .how = Waits::kAsleep, .only_watch = true});
  for (int victim = 0; victim < 3; ++victim) {
    kill_one({.size = 3, .victim = victim, .how = Waits::kAsleep, .only_watch = true});
  }
}

// It shows pages, and holds no more descriptors than the two of its own, however many ranks watch.
TEST(ShmDeath, WatchingTakesLittle) {
  const std::string place = fresh_place();
  std::vector<Child> children;
  for (int rank = 0; rank < 6; ++rank) {
    children.emplace_back([&, rank] {
      const int before = count_entries("/proc/self/fd");
      const auto witness = meet_to_watch(shm_options(rank, 6, place, std::size_t{1} << 40));
      return witness.is_ok() && count_entries("/proc/self/fd") == before + 2;
    });
  }
  for (Child& child : children) EXPECT_EQ(child.wait(), 0);
}

// Who is killed while the others are on their way costs them the witness, and nothing else.
TEST(ShmDeath, WhoDoesNotComeToWatchIsNotWaitedForLong) {
  const std::string place = fresh_place();
  std::vector<Child> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.emplace_back([&, rank] {
      ShmOptions options = shm_options(rank, 3, place);
      options.quiet = 300ms;
      const Nanos began = now_of_all();
      const auto witness = meet_to_watch(options);
      return witness.status().code() == StatusCode::kTimedOut && now_of_all() - began < kBound;
    });
  }
  for (Child& child : children) EXPECT_EQ(child.wait(), 0);
}

// Threads of this process with that name.
std::vector<int> threads_called(const std::string& name) {
  std::vector<int> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string text;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, text);
    if (text == name) found.push_back(std::atoi(task.path().filename().c_str()));
  }
  return found;
}

// Its short slice costs the program neither its priority nor a refusal.
TEST(ShmDeath, TheWatcherKeepsThePriority) {
  for (const bool refused : {false, true}) {
    Child child([refused] {
      if (::nice(5) != 5 || (refused && !refuse(SYS_sched_setattr, EPERM))) return false;
      const auto witness = meet_to_watch(shm_options(0, 1, fresh_place()));
      const std::vector<int> watchers = threads_called("kolo-vitals");
      return witness.is_ok() && watchers.size() == 1 &&
             ::getpriority(PRIO_PROCESS, static_cast<id_t>(watchers[0])) == 5;
    });
    EXPECT_EQ(child.wait(), 0);
  }
}

TEST(ShmDeath, WithoutFutexWaitvItTakesMilliseconds) {
  for (const int error : {ENOSYS, EPERM}) {
    report("sleeper without futex_waitv", {.how = Waits::kAsleep, .before_meeting = [error] {
                                             return refuse(SYS_futex_waitv, error);
                                           }});
  }
}

// What a forked child of the victim has inherited keeps nothing alive.
TEST(ShmDeath, AnOrphanOfTheVictimDoesNotHideIt) {
  Board orphan;
  kill_one({.how = Waits::kAsleep, .victim_does = [&] {
              const pid_t child = ::fork();
              if (child == 0) {
                ::prctl(PR_SET_PDEATHSIG, 0);
                orphan[0].stage.store(1);
                std::this_thread::sleep_for(1s);
                ::_exit(0);
              }
              return child > 0 && orphan.wait_all(1, 1);
            }});
}

TEST(ShmDeath, AllWaysToEndAProcessAreDeaths) {
  const std::vector<std::function<void()>> ends{[] { ::_exit(0); }, [] { ::raise(SIGTERM); },
                                                [] { ::execl("/bin/true", "true", nullptr); }};
  for (const auto& end : ends) {
    const std::string place = fresh_place();
    Board board;
    Child victim([&] {
      std::signal(SIGTERM, SIG_DFL);
      MetWindow window = meet_shm(shm_options(0, 2, place));
      if (!window || !board.wait_all(2, 0)) return false;
      end();
      return false;
    });
    Child watcher([&] {
      MetWindow window = meet_shm(shm_options(1, 2, place));
      return window.is_ok() && await_death(**window, Waits::kAsleep, board[1]);
    });
    EXPECT_EQ(watcher.wait(), 0);
    (void)victim.wait();
  }
}

TEST(ShmDeath, LeavingIsNoDeathButDyingAfterwardsByOthersIs) {
  const std::string place = fresh_place();
  Board board;
  std::vector<Child> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.emplace_back([&, rank] {
      MetWindow window = meet_shm(shm_options(rank, 3, place));
      if (!window) return false;
      board[rank].stage.store(1);
      if (rank == 0) {
        window->reset();
        board[0].stage.store(2);
        ::pause();  // killed without a window
      }
      if (rank == 1) ::pause();
      return await_death(**window, Waits::kAsleep, board[2]);
    });
  }
  ASSERT_TRUE(board.wait_all(3, 1) && board.wait_all(1, 2));
  children[0].kill(SIGKILL);
  EXPECT_EQ(children[0].wait(), -SIGKILL);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(board[2].stage.load(), 1) << "rank 0 had left";
  children[1].kill(SIGKILL);
  EXPECT_EQ(children[2].wait(), 0);
  EXPECT_EQ(board[2].stage.load(), 101);
}

}  // namespace
}  // namespace kolo::internal
