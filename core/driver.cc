#include "core/driver.h"

#include <algorithm>
#include <exception>

namespace kolo::internal {
namespace {

constexpr Nanos kLongestSleep = 1s;     // a wake-up that was missed heals by itself
constexpr Nanos kFollowerSleep = 10ms;  // of a waiter while another one drives

}  // namespace

Driver::Driver(const Parts& parts, const WaitPolicy& policy) : parts_(parts), policy_(policy) {}

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
  bool moved = parts_.engine.tick(now);
  const Result<bool> executed = parts_.executor.advance();
  if (!executed) {
    parts_.engine.fail(executed.status(), now);
    return true;
  }
  moved = moved || *executed;
  if (parts_.engine.leaving()) moved = answer_farewells() || moved;
  return moved;
}

bool Driver::run_bodies(Nanos now) {
  if (crashed_) return false;
  try {
    moving_ = advance_bodies(now);
    return moving_;
  } catch (const std::exception& error) {
    crashed_ = true;
    moving_ = false;
    const Status cause(StatusCode::kInternal, error.what());
    parts_.logger.error("the context is broken: " + cause.to_string());
    parts_.engine.break_with(cause);
    return true;
  }
}

// A peer that has left waits for our end of its channels: it comes when nothing is under way.
// True if a channel has come to its end.
bool Driver::answer_farewells() {
  if (!parts_.executor.idle()) return false;
  bool moved = false;
  for (auto& stream : parts_.fabric.channels) {
    for (auto& channel : stream) {
      if (channel == nullptr || channel->finished()) continue;
      static_cast<void>(channel->advance().is_ok());  // a broken channel counts as finished
      if (channel->peer_finished() || parts_.engine.said_goodbye()) channel->finish();
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
    for (const auto& channel : stream) {
      if (channel != nullptr && !channel->finished()) return false;
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
  parts_.poller.disarm();
}

void Driver::drive(const std::function<bool()>& done, Nanos deadline) {
  while (!done() && !give_way_.load(std::memory_order_relaxed)) {
    const Nanos now = parts_.clock.now();
    if (now >= deadline) return;
    if (!run_bodies(now)) await_event(now, deadline);
  }
}

// Nothing moves until something happens: a socket event, a submission, or a time limit. Spins,
// then yields, then sleeps.
void Driver::await_event(Nanos since, Nanos deadline) {
  for (Nanos now = since; now < deadline; now = parts_.clock.now()) {
    if (parts_.poller.poll() || !parts_.queue.empty()) return;
    if (give_way_.load(std::memory_order_relaxed)) return;
    switch (policy_.next(now - since)) {
      case WaitPolicy::Step::kSpin: break;
      case WaitPolicy::Step::kYield: std::this_thread::yield(); break;
      case WaitPolicy::Step::kSleep: {
        const Nanos until =
            std::min({deadline, parts_.engine.next_deadline(now), now + kLongestSleep});
        if (parts_.trace != nullptr) parts_.trace->flush();
        if (until > now) parts_.poller.wait(until - now);
        return;
      }
    }
  }
}

// Hands the sockets back to the background thread without waking it, unless there is work that
// needs no event: the bodies were still moving, or a time limit comes before it wakes by itself.
void Driver::leave() {
  while (parts_.poller.poll()) run_bodies(parts_.clock.now());
  const Nanos due = parts_.engine.next_deadline(parts_.clock.now());
  const bool work_left = (moving_ && !parts_.executor.idle()) ||
                         due.count() < background_until_.load(std::memory_order_relaxed);
  if (parts_.trace != nullptr) parts_.trace->flush();
  parts_.poller.arm();
  driven_.store(false, std::memory_order_seq_cst);
  drive_.unlock();
  parts_.completions.notify();
  if (work_left || !parts_.queue.empty()) parts_.poller.wake();
}

void Driver::drive_farewell(Nanos deadline, const Status& late) {
  give_way_.store(true);
  parts_.poller.wake();
  drive_.lock();
  give_way_.store(false);
  enter();
  drive([this] { return farewell_done(); }, deadline);
  parts_.executor.end_all(late);
  leave();
}

// ---- The background thread --------------------------------------------------------------------

void Driver::drive_in_background() {
  constexpr int kYields = 50;  // a peer's answer is often that near
  int yields = 0;
  while (yields < kYields && !give_way_.load(std::memory_order_relaxed)) {
    if (run_bodies(parts_.clock.now()) || parts_.poller.poll()) {
      yields = 0;
    } else if (parts_.executor.idle()) {
      break;
    } else {
      ++yields;
      std::this_thread::yield();
    }
  }
}

void Driver::background() {
  while (!stopping_.load(std::memory_order_acquire)) {
    if (parts_.completions.has_callbacks()) parts_.completions.run_callbacks();
    Nanos now = parts_.clock.now();
    Nanos until = now + kLongestSleep;
    if (drive_.try_lock()) {
      enter();
      drive_in_background();
      now = parts_.clock.now();
      until = std::min(parts_.engine.next_deadline(now), now + kLongestSleep);
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
