// Driver: who runs the bodies of a context, and how everybody else waits.
//
// Engine and executor are plain calls; exactly one thread runs them at a time, under the drive
// lock: a caller that waits (it then needs no thread hand-off), or the background thread when
// nobody waits. The background thread sleeps in the poller; a caller that drives disarms it, so
// that socket events do not wake it, and arms it again when it leaves.
//
// Threads: any, but run_bodies' work happens on one at a time. Owns the background thread.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "core/completions.h"
#include "core/engine.h"
#include "core/executor.h"
#include "core/tensor_queue.h"
#include "core/trace.h"
#include "core/unit_table.h"
#include "core/wait_policy.h"
#include "transport/fabric.h"
#include "transport/poller.h"

namespace kolo::internal {

class Driver {
 public:
  struct Parts {  // all outlive the driver
    Engine& engine;
    Executor& executor;
    TensorQueue& queue;
    Completions& completions;
    UnitTable& units;
    Fabric& fabric;
    Window* window;  // of this host's ranks; null: they share nothing
    Poller& poller;
    const Clock& clock;
    Logger& logger;
    Trace* trace = nullptr;
  };

  Driver(const Parts& parts, const WaitPolicy& policy);
  ~Driver();  // stop()

  void start();
  void stop();  // ends the background thread; callbacks that are due run first
  [[nodiscard]] bool on_background() const { return std::this_thread::get_id() == background_id_; }

  // Something is in the queue: wakes the driver if it sleeps, or the background thread if there is
  // no driver.
  void notice_queue();
  // A request was published in its slot. The other ranks ring when they come; if they are all there
  // already, it is this rank's turn, and somebody here must move.
  void notice_published(const RequestPtr& request);
  // Waits a moment for an inline request without driving. True if it is complete.
  bool await_inline(const RequestPtr& request);
  // Drives, or lets another thread drive, until `done` or `deadline`. False: the deadline passed.
  bool drive_until(const std::function<bool()>& done, Nanos deadline);
  // One bounded attempt to move things, if nobody else drives.
  void drive_once();
  // As drive_until, but asks a driving waiter to give way; until everything has ended here and
  // every peer has taken leave. Ends what is still under way at the deadline with `late`; then the
  // bodies do not run again.
  void drive_farewell(Nanos deadline, const Status& late);

 private:
  bool advance_bodies(Nanos now);
  bool run_bodies(Nanos now);
  void break_with(const std::exception& error);
  bool drain_devices();
  bool answer_farewells();
  [[nodiscard]] bool farewell_done() const;
  void enter();
  void drive(const std::function<bool()>& done, Nanos deadline);
  void await_event(Nanos since, Nanos deadline);
  void sleep(Nanos now, Nanos deadline);
  [[nodiscard]] Nanos poll_pause() const;
  bool poll();
  void leave();
  void background();
  void drive_in_background();
  bool try_again();

  Parts parts_;
  WaitPolicy policy_;
  bool sockets_carry_data_;                      // else they are quiet but for control frames
  std::mutex drive_;                             // held by whoever runs the bodies
  std::atomic<bool> driven_{false};              // ... who will look at the queue once more
  std::atomic<bool> give_way_{false};            // drive_farewell wants to drive
  std::atomic<Nanos::rep> background_until_{0};  // when the background thread wakes by itself
  std::atomic<bool> stopping_{false};
  std::atomic<bool> missed_{false};  // the background thread was woken and could not drive
  bool moving_ = false;              // what the bodies last said
  bool link_news_ = true;  // a socket event may not have been followed by a look at the link
  bool crashed_ = false;   // a Bug was caught, or a farewell cut off: the bodies do not run again
  std::thread background_;
  std::thread::id background_id_;
};

}  // namespace kolo::internal
