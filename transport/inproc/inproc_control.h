// InprocControlNetwork: control links in memory between N ranks of one process.
//
// Linked are each host's members with its leader (its lowest rank) and the leaders with rank 0, as
// on every road. Frames arrive at once and in order.
// Threads: each link has one user at a time; different links may live in different threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/control_link.h"

namespace kolo::internal {

class InprocControlNetwork {
 public:
  // `host_index[rank]` is the host of each rank.
  explicit InprocControlNetwork(const std::vector<int>& host_index);
  ~InprocControlNetwork();

  // The link of one rank; to be called once for each. Destroyed before finish(), its peers see the
  // rank as lost.
  std::unique_ptr<ControlLink> link(int rank);

  // As InprocNetwork::set_wake.
  void set_wake(int rank, std::function<void()> wake);
  // From here on `rank` is gone: every peer sees it as lost, and it sees all its peers as lost.
  void kill(int rank, const std::string& reason);

  struct Shared;  // defined in the .cc

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace kolo::internal
