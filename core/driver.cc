#include "core/driver.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

namespace kolo::internal {
namespace {

constexpr Nanos kLongestSleep = 1s;     // a wake-up that was missed heals by itself
constexpr Nanos kFollowerSleep = 10ms;  // of a waiter while another one drives
// Between two looks at channels that have no descriptor, once nothing has moved for a while.
constexpr Nanos kPollPause = 50us;
constexpr Nanos kFarewellPause = 5ms;
// How often a driver that waits for shared memory looks at the sockets too: each look is a system
// call, which would be most of the waiting.
constexpr int kTurnsBetweenLooks = 64;
constexpr int kYieldsBetweenLooks = 8;
// How a caller waits for a small operation before it begins to drive: some 2 us for ranks that are
// at it on other cores, then giving its own core away, which one of them may need.
constexpr int kInlineSpins = 32;
constexpr Nanos kInlineWait = 100us;

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Driver::Driver(const Parts& parts, const WaitPolicy& policy)
    : parts_(parts),
      policy_(policy),
      sockets_carry_data_(parts.window == nullptr ||
                          parts.window->size() <
                              static_cast<int>(parts.fabric.table.peers.size())) {}

Driver::~Driver() { stop(); }

void Driver::start() {
  parts_.poller.arm();
  background_ = std::thread([this] { background(); });
  background_id_ = background_.get_id();
}

void Driver::stop() {
  if (!background_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  parts_.poller.wake();
  background_.join();
}

// ---- The bodies, with drive_ held -------------------------------------------------------------

bool Driver::advance_bodies(Nanos now) {
  // Without shared memory everything comes by the sockets, so they are always read.
  const bool news = std::exchange(link_news_, false) || parts_.window == nullptr;
  bool moved = parts_.engine.tick(now, news);
  const Result<bool> executed = parts_.executor.advance();
  if (!executed) {
    parts_.engine.fail(executed.status(), now);
    return true;
  }
  moved = moved || *executed;
  if (parts_.engine.leaving()) moved = answer_farewells() || moved;
  return moved;
}

// Without memory even the text of the error may fail; what waits is then not told, and the process
// goes on as far as it can.
void Driver::break_with(const std::exception& error) {
  try {
    const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    const Status cause = memory ? resource_error("no memory; free some, and start again")
                                : Status(StatusCode::kInternal, error.what());
    parts_.logger.error("the context is broken: " + cause.to_string());
    parts_.engine.break_with(cause);
  } catch (const std::bad_alloc&) {
    return;
  }
}

// Operations that were given up while a device used their memory still have to end.
bool Driver::drain_devices() {
  try {
    return !parts_.executor.idle() && parts_.executor.advance().is_ok();
  } catch (const std::exception&) {
    return false;
  }
}

bool Driver::run_bodies(Nanos now) {
  if (crashed_) return drain_devices();
  try {
    moving_ = advance_bodies(now);
    return moving_;
  } catch (const std::exception& error) {
    crashed_ = true;
    moving_ = false;
    break_with(error);
    return true;
  }
}

// A peer that has left waits for our end of its channels: it comes when nothing of what is under
// way uses them. True if a channel has come to its end. In a broken context none does: some ranks
// would see all ends and others not, and over MPI who has seen them waits for the others at the
// process's exit.
bool Driver::answer_farewells() {
  if (!parts_.engine.broken().is_ok()) return false;
  const bool leaves = parts_.engine.said_goodbye() && parts_.executor.idle();
  bool moved = false;
  for (auto& stream : parts_.fabric.channels) {
    for (std::size_t peer = 0; peer < stream.size(); ++peer) {
      Channel* const channel = stream[peer].get();
      const int rank = static_cast<int>(peer);
      if (channel == nullptr || channel->finished()) continue;
      if (parts_.engine.is_out_of_reach(rank)) continue;
      if (!leaves && !parts_.engine.is_done_with(rank)) continue;
      static_cast<void>(channel->advance().is_ok());  // a broken channel counts as finished
      channel->finish();
      static_cast<void>(channel->advance().is_ok());
      moved = moved || channel->finished();
    }
  }
  return moved;
}

bool Driver::farewell_done() const {
  // Who is broken has nothing to finish, and its peers are told.
  if (crashed_ || !parts_.engine.broken().is_ok()) return true;
  if (!parts_.engine.said_goodbye() || !parts_.executor.idle()) return false;
  for (const auto& stream : parts_.fabric.channels) {
    for (std::size_t peer = 0; peer < stream.size(); ++peer) {
      const bool ends = stream[peer] == nullptr || stream[peer]->finished() ||
                        parts_.engine.is_out_of_reach(static_cast<int>(peer));
      if (!ends) return false;
    }
  }
  return true;
}

// ---- Waiters ----------------------------------------------------------------------------------

void Driver::notice_queue() {
  if (driven_.load(std::memory_order_seq_cst)) {
    parts_.poller.wake_driver();
  } else {
    parts_.poller.wake();
  }
}

void Driver::notice_published(const RequestPtr& request) {
  if (driven_.load(std::memory_order_seq_cst)) return parts_.poller.wake_driver();
  parts_.window->set_asleep(true);
  if (parts_.units.is_ours_to_move(request)) parts_.poller.wake();
}

bool Driver::await_inline(const RequestPtr& request) {
  const auto complete = [&] { return request->done() || parts_.engine.complete_inline(request); };
  const bool crowded = policy_.next(0ns) != WaitPolicy::Step::kSpin;
  for (int spin = crowded ? kInlineSpins : 0; spin < kInlineSpins; ++spin) {
    if (complete()) return true;
    pause_core();
  }
  const Nanos since = parts_.clock.now();
  Nanos last = since;
  for (Nanos now = since; now - since < kInlineWait; now = parts_.clock.now()) {
    if (policy_.next(kInlineWait, now - std::exchange(last, now)) == WaitPolicy::Step::kSleep)
      break;
    if (complete()) return true;
    std::this_thread::yield();
  }
  return complete();
}

bool Driver::drive_until(const std::function<bool()>& done, Nanos deadline) {
  bool noticed = false;
  while (!done()) {
    const Nanos now = parts_.clock.now();
    if (now >= deadline) return false;
    if (!give_way_.load(std::memory_order_relaxed) && drive_.try_lock()) {
      enter();
      drive(done, deadline);
      leave();
      continue;
    }
    if (!noticed) {  // the driver may be asleep, and what is waited for still in the queue
      notice_queue();
      noticed = true;
    }
    parts_.completions.sleep(std::min(kFollowerSleep, deadline - now),
                             [&] { return done() || !driven_.load(std::memory_order_seq_cst); });
  }
  return true;
}

void Driver::drive_once() {
  if (!drive_.try_lock()) return;
  enter();
  run_bodies(parts_.clock.now());
  leave();
}

void Driver::enter() {
  driven_.store(true, std::memory_order_seq_cst);
  if (parts_.window != nullptr) parts_.window->set_asleep(false);
  if (sockets_carry_data_) parts_.poller.disarm();
}

bool Driver::poll() {
  const bool news = parts_.poller.poll();
  link_news_ = link_news_ || news;
  return news;
}

void Driver::drive(const std::function<bool()>& done, Nanos deadline) {
  while (!done() && !give_way_.load(std::memory_order_relaxed)) {
    const Nanos now = parts_.clock.now();
    if (now >= deadline) return;
    if (!run_bodies(now)) await_event(now, deadline);
  }
}

// Nothing moves until something happens: an event of the poller, a submission, a word of another
// rank, or a time limit. Spins, then yields, then sleeps.
void Driver::await_event(Nanos since, Nanos deadline) {
  // What moves without an event of the poller.
  const bool shares = parts_.window != nullptr || parts_.fabric.polled;
  int turn = 0;
  Nanos last = since;
  for (Nanos now = since; now < deadline; now = parts_.clock.now()) {
    const WaitPolicy::Step step = policy_.next(now - since, now - std::exchange(last, now));
    const int between = step == WaitPolicy::Step::kSpin ? kTurnsBetweenLooks : kYieldsBetweenLooks;
    if (!shares || ++turn % between == 0) {
      if (poll()) return;
    }
    if (!parts_.queue.empty() || give_way_.load(std::memory_order_relaxed)) return;
    if (shares && run_bodies(now)) return;
    switch (step) {
      case WaitPolicy::Step::kSpin: pause_core(); break;
      case WaitPolicy::Step::kYield: std::this_thread::yield(); break;
      case WaitPolicy::Step::kSleep: return sleep(now, deadline);
    }
  }
}

void Driver::sleep(Nanos now, Nanos deadline) {
  Window* const window = parts_.window;
  if (window != nullptr) {
    window->set_asleep(true);
    if (run_bodies(now)) return window->set_asleep(false);
  }
  const Nanos until = std::min({deadline, parts_.engine.next_deadline(now), now + poll_pause()});
  if (parts_.trace != nullptr) parts_.trace->flush();
  if (until > now) parts_.poller.wait(until - now);
  link_news_ = true;
  if (window != nullptr) window->set_asleep(false);
}

// The longest time that the bodies may be left alone.
Nanos Driver::poll_pause() const {
  if (!parts_.fabric.polled || crashed_) return kLongestSleep;
  if (!parts_.executor.idle()) return kPollPause;
  return parts_.engine.leaving() ? kFarewellPause : kLongestSleep;
}

// Hands the sockets back to the background thread without waking it, unless there is work that
// needs no event: the bodies were still moving, or a time limit comes before it wakes by itself.
void Driver::leave() {
  Window* const window = parts_.window;
  if (window == nullptr) {
    while (poll()) run_bodies(parts_.clock.now());
  }
  const Nanos due = parts_.engine.next_deadline(parts_.clock.now());
  if (parts_.trace != nullptr) parts_.trace->flush();
  if (sockets_carry_data_) parts_.poller.arm();
  driven_.store(false, std::memory_order_seq_cst);
  // Nobody looks at the words of the others from here on: they ring. What they have written before
  // that was perhaps not seen.
  const bool expects =
      window != nullptr && (parts_.units.under_way() > 0 || parts_.engine.serves_others());
  if (expects) {
    window->set_asleep(true);
    run_bodies(parts_.clock.now());
  }
  const bool work_left = link_news_ || (moving_ && !parts_.executor.idle()) ||
                         poll_pause() < kLongestSleep ||
                         due.count() < background_until_.load(std::memory_order_relaxed);
  drive_.unlock();
  parts_.completions.notify();
  const bool missed = missed_.exchange(false, std::memory_order_seq_cst);
  if (work_left || missed || !parts_.queue.empty()) parts_.poller.wake();
}

void Driver::drive_farewell(Nanos deadline, const Status& late) {
  give_way_.store(true);
  parts_.poller.wake();
  drive_.lock();
  give_way_.store(false);
  enter();
  run_bodies(parts_.clock.now());  // which says goodbye, also where there is no time to wait
  drive([this] { return farewell_done(); }, deadline);
  parts_.completions.count_cut_off(late);
  if (!crashed_ && parts_.engine.cut_off(late, parts_.clock.now())) crashed_ = true;
  drive([this] { return parts_.executor.idle(); }, kNever);
  leave();
}

// ---- The background thread --------------------------------------------------------------------

// Until nothing is under way, or something else is this thread's to do: callbacks that are due.
void Driver::drive_in_background() {
  const int most = parts_.fabric.polled ? 1000 : 50;  // a peer's answer is often that near
  link_news_ = true;
  int yields = 0;
  while (yields < most && !give_way_.load(std::memory_order_relaxed) &&
         !parts_.completions.has_callbacks()) {
    if (run_bodies(parts_.clock.now()) || poll()) {
      yields = 0;
    } else if (parts_.executor.idle()) {
      break;
    } else {
      ++yields;
      std::this_thread::yield();
    }
  }
}

// A driver that has not seen the note has not yet unlocked, or unlocks in time.
bool Driver::try_again() {
  missed_.store(true, std::memory_order_seq_cst);
  if (!drive_.try_lock()) return false;
  missed_.store(false, std::memory_order_relaxed);
  return true;
}

void Driver::background() {
  while (!stopping_.load(std::memory_order_acquire)) {
    if (parts_.completions.has_callbacks()) parts_.completions.run_callbacks();
    Nanos now = parts_.clock.now();
    Nanos until = now + kLongestSleep;
    if (drive_.try_lock() || try_again()) {
      enter();
      drive_in_background();
      now = parts_.clock.now();
      until = std::min(parts_.engine.next_deadline(now), now + poll_pause());
      background_until_.store(until.count());
      leave();
    } else {
      background_until_.store(until.count());
    }
    if (parts_.completions.has_callbacks() || until <= now) continue;
    parts_.poller.wait_background(until - now);
  }
  parts_.completions.run_callbacks();
}

}  // namespace kolo::internal
