// LaunchThread: kolo's own thread for GPUs, one for each context. All that a context asks of NCCL
// and of the CUDA runtime happens here, so no caller's current device, capture or group is touched,
// and no two threads are ever inside one communicator. (The exceptions, which concern a caller's
// own pointers and streams, are in caller.h.)
//
// Tasks are launched in the order of their posting. A task must not wait for the device; the
// devices' finishers do. What is Watched (communicators) is looked at while tasks are under way,
// some times a second, and whenever it asks by poke().
//
// A library's call that does not come back holds all of this up. Who waits does not: take_back(),
// refuse() and stop() end with a patience, and may leave the thread behind.
//
// Threads: any, but stop() and the destructor, and what says so.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "ops/cuda/device.h"
#include "ops/cuda/task.h"

namespace kolo::internal::cuda {

// Memory of a device that kolo has given out.
struct DeviceMemory {
  int device = 0;
  void* address = nullptr;
  std::size_t bytes = 0;
};

// On the launch thread.
class Watched {
 public:
  virtual ~Watched() = default;
  // What has to be done without a task, e.g. to abort.
  virtual void look() = 0;
  // Memory that it may be told of by its address, and that goes.
  virtual void attach(const DeviceMemory& memory) = 0;
  virtual void detach(const DeviceMemory& memory) = 0;
};

class LaunchThread {
 public:
  // `notify`: a task was launched, or has ended. Called on kolo's GPU threads.
  LaunchThread(const Runtime& runtime, Nanos between_looks, std::function<void()> notify);
  LaunchThread(const LaunchThread&) = delete;
  LaunchThread& operator=(const LaunchThread&) = delete;
  ~LaunchThread() { stop(); }

  // After the first call().
  void post(Task& task);
  // Runs `work` after what has been posted, and waits for it; the thread begins with the first one.
  // RESOURCE if there can be no thread, ABORTED after stop(); or as refuse() says: `work` may then
  // still be running, or begin to, and owns what it uses.
  Status call(std::function<Status()> work);
  void poke();

  // Gives up a task, which then ends with `why`.
  enum class TakenBack {
    kNo,          // it is launched, or has ended, or the patience is not over
    kYes,         // it had not begun
    kLeftBehind,  // a library's call in it does not come back, or none can end what it launched:
                  // its memory may still be used, it lives until this thread has ended, whatever it
                  // says of itself, and is not posted again
  };
  TakenBack take_back(Task& task, const Status& why, Nanos patience);
  // From now on call() ends with `why` when the thread does not come back.
  void refuse(const Status& why, Nanos patience);
  // Does `work` soon, between tasks; nobody waits. Dropped after stop().
  void errand(std::function<void()> work);
  // Waits for what has been posted, gives all handles back and ends the thread.
  // `last`: done on the thread before the devices go. False: it has been in one call of a library
  // for longer than `patience`, and is left behind: this, its tasks and what they use must live on
  // for ever. It tells nobody any more.
  bool stop(
      const std::function<void()>& last = [] {}, Nanos patience = kNever);

  // ---- On the launch thread -------------------------------------------------------------------
  // The device, current and open.
  Result<Device*> device(int number);
  // It is told of the memory that there is.
  void watch(Watched& watched);
  void unwatch(Watched& watched) { std::erase(watched_, &watched); }
  // Memory that all Watched ones are to know; and before it is freed, that it goes.
  void announce(const DeviceMemory& memory);
  void withdraw(void* address);
  // Sleeps, at most `limit`, or until poke(); then looks at all that is watched.
  void sleep(Nanos limit);
  [[nodiscard]] const Runtime& runtime() const { return runtime_; }

  // The device, if it is open; any thread.
  [[nodiscard]] Device* find(int number) const;

 private:
  Status start();
  void append(Task& task);
  bool withdraw(Task& task);
  void mark_busy(bool is_busy);
  [[nodiscard]] bool is_stuck(Nanos patience) const;
  void leave_behind();
  void tell();
  void run();
  bool wait_for_work();
  Task* next_task();
  void launch(Task& task);
  bool has_been_left(Task& task);
  void do_errands();
  // Where a task has left work behind which no event could be recorded.
  Device* find_unrecorded();
  void look();

  const Runtime& runtime_;
  Nanos between_looks_;
  std::mutex notify_mutex_;
  std::function<void()> notify_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable ended_;
  std::deque<Task*> tasks_;
  Task* launching_ = nullptr;
  std::vector<std::shared_ptr<Task>> left_calls_;
  Nanos busy_since_ = kNever;  // without a rest; kNever: it rests
  Status refused_;             // with what calls end, and when
  Nanos refusal_patience_ = kNever;
  std::vector<std::function<void()>> errands_;
  bool stopping_ = false;
  bool has_ended_ = false;
  bool poked_ = false;
  std::atomic<std::size_t> under_way_{0};  // posted and not ended
  std::map<int, std::unique_ptr<Device>> devices_;
  std::vector<Watched*> watched_;
  std::vector<DeviceMemory> memory_;
  std::vector<std::unique_ptr<EventPool>> retired_;  // of devices that are closed
  std::function<void()> last_;
  std::thread thread_;
};

}  // namespace kolo::internal::cuda
