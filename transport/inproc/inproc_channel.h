// InprocNetwork: channels in memory between N ranks of one process, for tests, the simulator and
// ranks that are threads.
//
// Nothing is buffered: a message moves when its receiver advances, straight from the sender's
// memory, so whoever relies on hidden buffering deadlocks here first. A send is done at the
// sender's next advance() after that.
//
// Threads: each channel has one user at a time, as ever; the two ends may live in different
// threads (one mutex per pair of ends). The network itself may be used from any thread and must
// outlive neither its channels nor the other way round (they share what they need).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/channel.h"

namespace kolo::internal {

// What goes wrong on purpose; one seed gives the same behaviour for the same calls.
struct InprocFaults {
  std::uint64_t seed = 0;
  std::size_t max_move_bytes = 0;  // an advance() moves a random 1..this many bytes; 0: no limit
  unsigned stall_percent = 0;      // of the calls of advance() move nothing at all
};

class InprocNetwork {
 public:
  explicit InprocNetwork(int size, int streams = 1, const InprocFaults& faults = {});
  ~InprocNetwork();

  // channels[stream][peer] of one rank, null at `rank`; to be called once for each rank. Its peers
  // may post to it before that.
  std::vector<std::vector<std::unique_ptr<Channel>>> channels(int rank);

  // Called, from any thread and with no lock of a channel held, when something may have become
  // possible for `rank`. An empty function removes it; no call is running after that returns.
  void set_wake(int rank, std::function<void()> wake);

  // From here on `rank` is gone: all its channels are broken, at both ends.
  void kill(int rank, const std::string& reason);

  struct Shared;  // defined in the .cc

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace kolo::internal
