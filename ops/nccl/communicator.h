// Communicator: one NCCL communicator: of a process set's ranks, each with one device.
//
// It is made and used without blocking: NCCL says "in progress", and the launch thread asks again
// until a deadline, or until somebody gives the communicator up. Giving up is a word: the first
// cause of doom() stays, and the launch thread aborts, once, which also ends what is stuck on the
// device. A communicator that is not given up is destroyed in order.
//
// Threads: doom() and doomed() on any; the rest, destructor included, on the launch thread. One
// that is closed may be destroyed anywhere.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "ops/cuda/launch_thread.h"
#include "ops/nccl/library.h"

namespace kolo::internal::nccl {

class Communicator final : public cuda::Watched {
 public:
  struct Limits {
    Nanos to_open{0};    // for all ranks to come
    Nanos to_settle{0};  // for a call that is in progress, e.g. the first one, which connects
    Nanos to_close{0};   // for what the ranks still do together at the end
    Nanos grace{0};      // before an error is believed that another rank's end may explain better
  };

  // Both outlive this.
  Communicator(const Library& library, cuda::LaunchThread& thread, const Clock& clock,
               const Limits& limits, int device)
      : library_(library), thread_(thread), clock_(clock), limits_(limits), device_(device) {}
  ~Communicator() override { close(); }
  // Ends it: in order, or by aborting where it is given up, or becomes so meanwhile.
  void close();

  // Meets the others; the device is current. On error the communicator is doomed with it:
  // TIMED_OUT, NCCL_ERROR, or what it was doomed with meanwhile.
  Status open(const UniqueId& id, int size, int rank);
  [[nodiscard]] CommHandle handle() const { return handle_; }
  // After a call of NCCL's: waits while it is in progress. An error dooms.
  Status settle(Error first, const char* call);
  // The ranks that stay meet again without those of `gone` (their numbers in it), in a fresh
  // communicator: NCCL's own shrinking where it has that, else by `id`, the same on all that stay.
  // This one is given up with `why`.
  Status shrink_into(Communicator& fresh, std::span<const int> gone, const UniqueId& id, int size,
                     int rank, const Status& why);

  // First cause wins; wakes the launch thread.
  void doom(Status why);
  // What it was given up with; else OK.
  [[nodiscard]] Status doomed() const;

  void look() override;
  // Registers memory of its device, as far as NCCL can.
  void attach(const cuda::DeviceMemory& memory) override;
  void detach(const cuda::DeviceMemory& memory) override;

 private:
  void watch();
  void unwatch();
  void break_off();
  Status settle(Error first, const char* call, Nanos limit, const char* suspicion);
  [[nodiscard]] Error ask() const;
  [[nodiscard]] bool is_believed(Error error);
  Status fail(Error error, const char* call);

  const Library& library_;
  cuda::LaunchThread& thread_;
  const Clock& clock_;
  Limits limits_;
  CommHandle handle_ = nullptr;
  int device_;
  bool watched_ = false;
  std::map<void*, void*> registered_;  // NCCL's handles by address
  Nanos suspect_since_ = kNever;       // an error that may be another rank's end
  mutable std::mutex mutex_;
  Status doom_;
};

}  // namespace kolo::internal::nccl
