// Vitals: how the ranks of a host see each other die, in microseconds and whatever their memory.
//
// Every rank holds one robust futex word per peer, in its own segment, by a thread that lives as
// long as the window. When a process dies, the kernel marks the words of its threads before it
// tears down memory and descriptors, and wakes whoever sleeps on them. The thread that holds this
// rank's words also sleeps on those of the others, and calls `on_death` (from that thread) for
// each that dies. Destruction lets go of the words first, which is no death.
//
// The thread asks for a short time slice, so that it gets its turn also on cores on which ranks
// compute: the one of the process that dies, and those of the others.
//
// At most 127 words can be slept on: in a larger window a rank watches the next 127, so who sees a
// death must tell the others. Without futex_waitv (before Linux 5.16, or filtered) the thread looks
// every 2 ms. A process that is writing a core dump dies only afterwards.
//
// Threads: lost() by any. A forked child may only destroy it.
#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"
#include "transport/shm/segment.h"

namespace kolo::internal {

class Vitals {
 public:
  // own[peer] is held for `peer`; watched[peer] is the word that `peer` holds for this rank (the
  // entries of this rank itself are unused). Both must outlive this. RESOURCE: no thread.
  static Result<std::unique_ptr<Vitals>> start(
      int rank, std::span<VitalNode> own, std::vector<const std::atomic<std::uint32_t>*> watched,
      std::function<void()> on_death);
  Vitals(const Vitals&) = delete;
  Vitals& operator=(const Vitals&) = delete;
  ~Vitals();

  // The lowest rank that has died, or -1: one load per peer.
  [[nodiscard]] int lost() const;
  [[nodiscard]] bool is_lost(int peer) const;

 private:
  enum class State : int { kStarting, kHolding, kFailed };

  Vitals(int rank, std::span<VitalNode> own, std::vector<const std::atomic<std::uint32_t>*> watched,
         std::function<void()> on_death);
  void run();
  bool hold();
  void let_go();
  void watch();
  bool report_deaths(std::vector<bool>& reported) const;
  bool sleep_on_words(std::vector<futex_waitv>& words) const;

  const int rank_;
  const std::span<VitalNode> own_;
  const std::vector<const std::atomic<std::uint32_t>*> watched_;
  const std::function<void()> on_death_;
  const int process_;
  robust_list_head list_{};  // the kernel's view of own_; read by it until the thread has ended
  std::atomic<std::uint32_t> stop_{0};
  std::atomic<State> state_{State::kStarting};
  std::unique_ptr<std::thread> thread_;
};

}  // namespace kolo::internal
