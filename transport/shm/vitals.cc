#include "transport/shm/vitals.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <system_error>
#include <utility>

namespace kolo::internal {
namespace {

// A word is 0 until its owner holds it, then FUTEX_WAITERS | thread id, and in the end this (which
// no thread has for its id), or whatever the kernel leaves, with FUTEX_OWNER_DIED in it.
constexpr std::uint32_t kLetGo = FUTEX_TID_MASK;

bool died(std::uint32_t word) { return (word & FUTEX_OWNER_DIED) != 0; }

void wake_all(std::atomic<std::uint32_t>& word, int flags) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE | flags, INT_MAX, nullptr, nullptr, 0);
}

futex_waitv sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t seen, int flags) {
  futex_waitv made{};
  made.val = seen;
  made.uaddr = reinterpret_cast<std::uintptr_t>(&word);
  made.flags = static_cast<std::uint32_t>(FUTEX_32 | flags);
  return made;
}

// Of the kernel's interface, as far as it is as old as the system call.
struct SchedulingAttributes {
  std::uint32_t size;
  std::uint32_t policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime;
  std::uint64_t deadline;
  std::uint64_t period;
};

// This thread runs for some 10 us at a time, and seldom: a short slice (since Linux 6.12) lets it
// run at once on a core that others compute on; without, a turn of theirs comes first. Asks for no
// more than its share, so it needs no privilege; where it is refused, nothing but speed is lost.
void ask_for_short_slice() {
  constexpr std::uint64_t kSliceNs = 100'000;  // the kernel's least
  SchedulingAttributes attributes{};
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.size = sizeof attributes;
  attributes.runtime = kSliceNs;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

// The application's signal handlers have no business on this thread.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

Vitals::Vitals(int rank, std::span<VitalNode> own,
               std::vector<const std::atomic<std::uint32_t>*> watched,
               std::function<void()> on_death)
    : rank_(rank),
      own_(own),
      watched_(std::move(watched)),
      on_death_(std::move(on_death)),
      process_(::getpid()) {}

Result<std::unique_ptr<Vitals>> Vitals::start(
    int rank, std::span<VitalNode> own, std::vector<const std::atomic<std::uint32_t>*> watched,
    std::function<void()> on_death) {
  std::unique_ptr<Vitals> made(new Vitals(rank, own, std::move(watched), std::move(on_death)));
  try {
    const AllSignalsBlocked blocked;
    made->thread_ = std::make_unique<std::thread>([vitals = made.get()] { vitals->run(); });
  } catch (const std::system_error& error) {
    return resource_error("no thread to watch the ranks of this host: " +
                          std::string(error.what()) + "; raise ulimit -u");
  }
  made->state_.wait(State::kStarting);
  if (made->state_.load() == State::kFailed) {
    return resource_error("this kernel has no robust futexes, by which ranks see each other die");
  }
  return made;
}

Vitals::~Vitals() {
  if (process_ != ::getpid()) {  // a forked child, which has no such thread to join
    (void)thread_.release();
    return;
  }
  if (thread_ == nullptr) return;
  stop_.store(1);
  wake_all(stop_, FUTEX_PRIVATE_FLAG);
  thread_->join();
}

int Vitals::lost() const {
  for (int peer = 0; peer < static_cast<int>(watched_.size()); ++peer) {
    if (is_lost(peer)) return peer;
  }
  return -1;
}

bool Vitals::is_lost(int peer) const {
  return peer != rank_ && died(watched_[static_cast<std::size_t>(peer)]->load());
}

void Vitals::run() {
  ::pthread_setname_np(::pthread_self(), "kolo-vitals");
  ask_for_short_slice();
  const bool holding = hold();
  state_.store(holding ? State::kHolding : State::kFailed);
  state_.notify_all();
  if (!holding) return;
  watch();
  let_go();
}

// The C library's own list is replaced: this thread locks no robust mutex.
bool Vitals::hold() {
  robust_list* last = &list_.list;
  for (VitalNode& node : own_) {
    last->next = &node.list;
    last = &node.list;
  }
  last->next = &list_.list;
  list_.futex_offset = offsetof(VitalNode, word);
  if (::syscall(SYS_set_robust_list, &list_, sizeof list_) != 0) return false;
  const auto me = static_cast<std::uint32_t>(::gettid());
  for (VitalNode& node : own_) {
    node.word.store(FUTEX_WAITERS | me);  // "waiters": the kernel shall wake them
    wake_all(node.word, 0);               // who came first sleeps on 0
  }
  return true;
}

void Vitals::let_go() {
  for (VitalNode& node : own_) {
    node.word.store(kLetGo);
    wake_all(node.word, 0);
  }
  list_.list.next = &list_.list;
}

void Vitals::watch() {
  std::vector<bool> reported(watched_.size());
  std::vector<futex_waitv> words;
  words.reserve(FUTEX_WAITV_MAX);
  bool can_sleep = true;
  while (stop_.load() == 0) {
    words.assign(1, sleep_on(stop_, 0, FUTEX_PRIVATE_FLAG));
    for (std::size_t step = 1; step < watched_.size(); ++step) {
      const auto& word = *watched_[(static_cast<std::size_t>(rank_) + step) % watched_.size()];
      const std::uint32_t seen = word.load();
      if (died(seen) || seen == kLetGo || words.size() == FUTEX_WAITV_MAX) continue;
      words.push_back(sleep_on(word, seen, 0));
    }
    if (report_deaths(reported)) on_death_();
    if (can_sleep) {
      can_sleep = sleep_on_words(words);
    } else {
      const timespec pause{0, 2'000'000};
      ::syscall(SYS_futex, &stop_, FUTEX_WAIT_PRIVATE, 0, &pause, nullptr, 0);
    }
  }
}

bool Vitals::report_deaths(std::vector<bool>& reported) const {
  bool news = false;
  for (std::size_t peer = 0; peer < watched_.size(); ++peer) {
    if (static_cast<int>(peer) == rank_ || reported[peer] || !died(watched_[peer]->load()))
      continue;
    reported[peer] = true;
    news = true;
  }
  return news;
}

// False if the kernel cannot do it.
bool Vitals::sleep_on_words(std::vector<futex_waitv>& words) const {
  const long result = ::syscall(SYS_futex_waitv, words.data(), words.size(), 0, nullptr, 0);
  return result >= 0 || errno == EAGAIN || errno == EINTR;
}

}  // namespace kolo::internal
