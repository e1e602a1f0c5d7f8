// Poller: the one sleeping place of a context: every socket it reads and one wake-up event.
//
// Descriptors are registered edge-triggered, once, for reading and writing: whoever is told of an
// event must read and write until the kernel says "not now", as channels and control links do in
// advance() and poll().
//
// Two kinds of sleeper share it. A *driver* (whoever holds the context's drive lock) calls poll()
// and wait(). The background thread, while others drive, calls wait_background(): it is woken only
// by wake() or, after arm(), once by each socket event, and by those that arm() finds; disarm()
// lets a driver work without waking it.
//
// Threads: wake() from any thread; wait_background() from the one background thread; the rest by
// the driver only.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/status.h"

namespace kolo::internal {

class Poller {
 public:
  static Result<Poller> create();  // RESOURCE if descriptors have run out
  Poller(Poller&&) noexcept;
  Poller& operator=(Poller&&) noexcept;
  ~Poller();

  Status add(int fd);
  void remove(int fd);  // before the descriptor is closed

  // Whether anything happened since the last look; never blocks. Forgets what it saw.
  bool poll();
  // Sleeps until an event, wake() or `limit` (a duration). True if there was an event or wake-up.
  bool wait(Nanos limit);

  // The background thread's sleep: until wake(), or a socket event while armed, or `limit`.
  void wait_background(Nanos limit);
  void arm();     // socket events wake the background thread again
  void disarm();  // they do not

  // Wakes whoever sleeps, driver and background thread (an increment and two tests when nobody
  // does). A wake-up is never lost: a sleeper that has not yet seen it will not go to sleep.
  void wake();
  // The same for the driver only.
  void wake_driver();

  // In a child that fork() has just made: closes its copies of all that is registered, with which
  // it would hide the parent's death from peers. The parent's own are not touched. Only calls that
  // are safe there; does nothing without /proc.
  void close_in_child() const noexcept;

 private:
  struct Shared;  // fixed address for the atomics that wake() reads
  explicit Poller(std::unique_ptr<Shared> shared);
  std::unique_ptr<Shared> shared_;
};

}  // namespace kolo::internal
