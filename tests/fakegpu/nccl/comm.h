// One rank's communicator: its meeting place, a thread that does what must not block a caller
// (initialisation, launches, finalisation), and the error that others see.
//
// Threads: one caller at a time, as for the real one; abort() and error() from any thread, at any
// time. Ownership: shared by the handle table, its own thread and the work in streams.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakegpu/machine.h"
#include "tests/fakegpu/nccl/meeting.h"
#include "tests/fakegpu/nccl/operation.h"

namespace fakegpu {

class Comm : public std::enable_shared_from_this<Comm> {
 public:
  struct Plan {
    int size = 1;
    int rank = 0;
    bool is_blocking = true;
    Fault fault;  // of the initialisation
  };

  Comm(Device& device, const Plan& plan);
  ~Comm();

  int size() const { return plan_.size; }
  int rank() const { return plan_.rank; }
  Device& device() const { return device_; }
  bool is_blocking() const { return plan_.is_blocking; }

  // Does the job on the communicator's thread; until it is done, error() is "in progress".
  using Job = std::function<int()>;
  void post(Job job);
  // Waits for the jobs so far; returns error().
  int settle();

  // Where the id comes from: it may have to wait for another rank, until `stop` says so.
  using IdSource = std::function<int(nccl::UniqueId* id, const Meeting::Stop& stop)>;

  // The jobs.
  int meet(const IdSource& find_id);
  int launch(std::vector<Operation> operations);
  int finish();

  // 0, in progress, or what went wrong.
  int error() const { return error_.load(); }
  void set_error(int error, const std::string& why);

  // Ends all that is stuck. True the first time.
  bool abort();
  bool is_aborted() const { return aborted_.load(); }
  bool is_finalized() const { return finalized_.load(); }
  // Whether work of it is in a stream, and not done.
  bool is_busy();
  void wait_for_work();  // ends early when aborted
  // Ends the thread; nothing is posted after it.
  void stop_thread();

  Meeting* meeting() const { return meeting_.get(); }

  // Reductions that the program made: their factors by number.
  int add_factor(const Factor& factor);
  bool remove_factor(int op);
  // False: neither NCCL's nor one of these.
  bool find_factor(int op, Factor* factor);
  std::size_t factors_left();

  // Guards against two threads in one communicator: false when another one is inside.
  bool enter();
  void leave() { inside_ = std::thread::id(); }
  // The thread whose open group holds operations of it.
  std::atomic<std::thread::id> group_owner{};

  int shrinks = 0;

 private:
  void run();
  bool should_stop() const { return aborted_.load() || device_.error() != 0; }
  int submit(std::vector<Operation> operations);

  Device& device_;
  const Plan plan_;
  std::unique_ptr<Meeting> meeting_;
  std::atomic<int> error_{0};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> finalized_{false};
  std::atomic<std::thread::id> inside_{};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool is_working_ = false;
  bool is_stopping_ = false;
  TicketPointer last_;
  std::map<int, Factor> factors_;
  int next_factor_ = 0;
  std::thread thread_;
};

using CommPointer = std::shared_ptr<Comm>;

}  // namespace fakegpu
