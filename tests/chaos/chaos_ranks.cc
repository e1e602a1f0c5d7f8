// chaos_ranks BOARD: one rank of a trial. Everything it does, and when, comes from the plan on the
// board; everything it sees goes there. It ends with 0 whatever becomes of the job, and is never
// ended by SIGTERM: a survivor has to look at what comes after.
#include <kolo/kolo.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/chaos/shim.h"
#include "tests/chaos/work.h"

namespace kolo::chaos {
namespace {

// ThreadSanitizer has one of its own, from a program's first other thread on.
#ifdef __SANITIZE_THREAD__
constexpr std::size_t kThreadsOfTheSanitizer = 1;
#else
constexpr std::size_t kThreadsOfTheSanitizer = 0;
#endif

constexpr std::int64_t kNanosPerMs = 1'000'000;

std::size_t entries_of(const char* folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    count += entry.path().empty() ? 0 : 1;
  }
  return count;
}

std::int64_t mapped_mib() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  file >> pages;
  return pages * ::sysconf(_SC_PAGESIZE) >> 20;
}

Cell* dying = nullptr;  // of who is to die during init

class Rank {
 public:
  Rank(BoardFile& board, int rank)
      : board_(*board),
        plan_(board->plan),
        rank_(rank),
        cell_(board->cells[static_cast<std::size_t>(rank)]),
        witness_(cell_, plan_.calm_ms),
        work_(plan_, rank, witness_) {}

  void run() {
    cell_.pid = ::getpid();
    hold_ballast();
    meet_on_the_board();
    descriptors_ = entries_of("/proc/self/fd");
    threads_ = entries_of("/proc/self/task") + kThreadsOfTheSanitizer;
    cell_.phase = Phase::kInit;
    make_worse();
    const kolo_status status = witness_.watch([&] { return kolo_init(nullptr, &context_); });
    restore();
    if (status == KOLO_OK) {
      work_.attach(context_);
      make_steps();
      if (witness_.has_failed()) look_after_failure();
      leave(Phase::kShutdown);
    }
    await_resumption();
    count_what_is_left();
    cell_.phase = Phase::kDone;
  }

 private:
  [[nodiscard]] bool is_victim() const { return rank_ == plan_.victim; }

  void hold_ballast() {
    if (!is_victim() || plan_.ballast_bytes == 0) return;
    const auto bytes = static_cast<std::size_t>(plan_.ballast_bytes);
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) witness_.complain("no memory for the ballast");
  }

  // So that what comes takes place in all ranks at about one time.
  void meet_on_the_board() {
    cell_.phase = Phase::kReady;
    for (int other = 0; other < plan_.size(); ++other) {
      const Cell& theirs = board_.cells[static_cast<std::size_t>(other)];
      while (theirs.phase == Phase::kNone) sleep_us(200);
    }
  }

  void make_worse() {
    if (!is_victim()) return;
    if (plan_.fault == Fault::kFail) {
      chaos_shim_fail(calls()[static_cast<std::size_t>(plan_.call)].c_str(), plan_.nth);
    }
    if (plan_.fault == Fault::kDie) {
      dying = &cell_;
      chaos_shim_die(deadly_calls()[static_cast<std::size_t>(plan_.call)].c_str(), plan_.nth,
                     [] { dying->died = monotonic_ns(); });
    }
    if (plan_.fault != Fault::kLimit) return;
    const int kind = plan_.address_space ? RLIMIT_AS : RLIMIT_NOFILE;
    rlimit limit{};
    ::getrlimit(kind, &limit);
    whole_ = limit;
    limit.rlim_cur = plan_.address_space ? static_cast<rlim_t>(mapped_mib() + plan_.nth) << 20
                                         : descriptors_ + static_cast<rlim_t>(plan_.nth);
    if (!plan_.address_space) limit.rlim_max = limit.rlim_cur;
    ::setrlimit(kind, &limit);
  }

  // What failed during init shall not fail this program's own work.
  void restore() {
    if (!is_victim()) return;
    if (plan_.fault == Fault::kFail) {
      cell_.fired = chaos_shim_fired();
      chaos_shim_fail("", 0);
    }
    if (plan_.fault == Fault::kDie) chaos_shim_die("", 0, nullptr);
    if (plan_.fault != Fault::kLimit) return;
    cell_.fired = witness_.has_failed() ? 1 : 0;
    ::setrlimit(plan_.address_space ? RLIMIT_AS : RLIMIT_NOFILE, &whole_);
  }

  void make_steps() {
    cell_.phase = Phase::kSteps;
    std::uint64_t number = 0;
    while (work_.step(number, board_.finish, hold_us(number))) {
      if (plan_.moment == Moment::kIdle && ++number == 3) return idle();
      if (plan_.fault == Fault::kClock && is_victim()) jump(number);
      if (plan_.moment != Moment::kIdle) ++number;
    }
  }

  // The victim of kNegotiate lets the others wait for its tensors.
  std::int64_t hold_us(std::uint64_t number) {
    if (!is_victim() || plan_.moment != Moment::kNegotiate || number < 3) return 0;
    cell_.phase = Phase::kNegotiate;
    return 20'000;
  }

  void jump(std::uint64_t number) {
    constexpr std::int64_t kNanosPerSecond = 1'000'000'000;
    constexpr std::int64_t kJumpsSeconds[] = {3600, -3600, 30, 0};
    chaos_shim_set_clock(kJumpsSeconds[number % 4] * kNanosPerSecond);
  }

  // The victim sleeps outside of kolo; of the others some wait for it, some do nothing but look
  // every now and then.
  void idle() {
    cell_.phase = Phase::kIdle;
    if (is_victim()) {
      while (kolo_health(context_) == KOLO_OK) sleep_us(500);
      witness_.watch([&] { return kolo_health(context_); });
    } else if ((plan_.seed + static_cast<std::uint64_t>(rank_)) % 2 == 0) {
      std::int64_t value = rank_;
      kolo_options options = KOLO_OPTIONS_INIT;
      options.name = "never";
      witness_.watch([&] {
        return kolo_allreduce(context_, &value, &value, 1, KOLO_INT64, KOLO_SUM, &options, nullptr);
      });
      if (value != rank_) witness_.complain("an all-reduce that failed changed its buffer");
    } else {
      witness_.watch([&] {
        kolo_status status = KOLO_OK;
        while ((status = kolo_health(context_)) == KOLO_OK) sleep_us(100);
        return status;
      });
    }
    cell_.pending_ended = monotonic_ns();
  }

  void look_after_failure() {
    cell_.phase = Phase::kFailed;
    work_.abandon();
    std::int64_t value = 1;
    const auto later = [&](const char* what, auto&& call) {
      const std::int64_t began = monotonic_ns();
      const kolo_status status = call();
      cell_.later_ns = std::max(cell_.later_ns, monotonic_ns() - began);
      if (status == KOLO_OK) witness_.complain(std::string(what) + " after the failure went well");
    };
    later("an all-reduce", [&] {
      return kolo_allreduce(context_, &value, &value, 1, KOLO_INT64, KOLO_SUM, nullptr, nullptr);
    });
    later("a barrier", [&] { return kolo_barrier(context_, nullptr, nullptr); });
    later("kolo_health", [&] { return kolo_health(context_); });
    if (value != 1) witness_.complain("an all-reduce after the failure changed its buffer");
    if (!plan_.leaves_early) await_resumption();
    work_.check_abandoned();
  }

  // Until the frozen victim has had time to do harm, if there is one.
  void await_resumption() {
    if (plan_.fault != Fault::kFreeze || is_victim() || waited_ || !witness_.has_failed()) return;
    waited_ = true;
    cell_.phase = Phase::kWaiting;
    while (board_.resumed == 0) sleep_us(1000);
    sleep_us(200'000);
    if (plan_.leaves_early) return;
    work_.check_abandoned();
  }

  void leave(Phase phase) {
    cell_.phase = phase;
    const std::int64_t began = monotonic_ns();
    const kolo_status status = witness_.watch([&] { return kolo_shutdown(context_); });
    cell_.shutdown_ns = monotonic_ns() - began;
    cell_.shutdown_status = status;
  }

  void count_what_is_left() {
    if (plan_.fault == Fault::kLimit) return;  // this program has met the limit itself
    const std::size_t descriptors = entries_of("/proc/self/fd");
    const std::size_t threads = entries_of("/proc/self/task");
    if (descriptors != descriptors_ || threads != threads_) {
      std::string what;
      for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code ignored;
        what += " " + std::filesystem::read_symlink(entry.path(), ignored).string();
      }
      witness_.complain("after the end there are " + std::to_string(descriptors) +
                        " descriptors and " + std::to_string(threads) + " threads, not " +
                        std::to_string(descriptors_) + " and " + std::to_string(threads_) + ":" +
                        what);
    }
  }

  Board& board_;
  const Plan plan_;
  const int rank_;
  Cell& cell_;
  Witness witness_;
  Work work_;
  kolo_context* context_ = nullptr;
  rlimit whole_{};
  std::size_t descriptors_ = 0;
  std::size_t threads_ = 0;
  bool waited_ = false;
};

}  // namespace
}  // namespace kolo::chaos

int main(int argc, char** argv) {
  const char* rank = std::getenv("KOLO_RANK");
  if (argc != 2 || rank == nullptr) {
    std::fprintf(stderr, "usage, for the program chaos only: chaos_ranks BOARD\n");
    return 2;
  }
  ::signal(SIGTERM, SIG_IGN);
  try {
    kolo::chaos::BoardFile board = kolo::chaos::BoardFile::open(argv[1]);
    kolo::chaos::Rank(board, std::atoi(rank)).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chaos_ranks: rank %s: %s\n", rank, error.what());
    return 3;
  }
  return 0;
}
