// ProcessWatch: sees the processes of this host's other ranks end while the ranks meet, when
// neither shared memory nor connections between all of them tell of it yet.
//
// By pidfds, so only where ranks have process numbers in common: one kernel and one pid namespace
// (pid_space()). Elsewhere, on kernels before 5.3, and for those for whom no descriptor is left, it
// sees nothing, and whoever waits has only his limit. No rank may have left in good order while
// somebody still asks. One thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/fabric.h"

namespace kolo::internal {

// The same text for all processes that have process numbers in common, and for no others; empty:
// the system does not tell.
[[nodiscard]] std::string pid_space();

class ProcessWatch {
 public:
  // Of the ranks in `table` on the host of rank `self`; outlives neither.
  ProcessWatch(const PeerTable& table, int self);

  // Readable as soon as one has ended (level-triggered); -1: nobody can be watched.
  [[nodiscard]] int descriptor() const { return epoll_.get(); }
  // PEER_LOST, with rank and host of those that had ended when one was first seen here: which of
  // several was the first is not known. A system call.
  [[nodiscard]] Status lost() const;

 private:
  void watch(const PeerInfo& peer);

  const PeerTable& table_;
  UniqueFd epoll_;
  std::vector<UniqueFd> processes_;
  mutable Status lost_;
};

}  // namespace kolo::internal
