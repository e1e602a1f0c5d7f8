// Road: everything that connects a context with the other ranks, and how it comes to stand.
//
// With context_window, the only place where core names concrete back ends.
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "base/options.h"
#include "base/status.h"
#include "core/context_window.h"
#include "transport/fabric.h"
#include "transport/poller.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {

struct Road {
  std::unique_ptr<Poller> poller;  // first in, last out: the fabric's sockets are registered there
  std::unique_ptr<RendezvousServer> server;  // rank 0 of a job without launcher
  std::unique_ptr<RendezvousClient> client;  // its end tells the others that this rank left
  Fabric fabric;
  SharedMemory memory;
  std::unique_ptr<Witness> watch;  // where there is no shared memory; may be null
  std::string name;  // "shm", "tcp", "mpi", "shm+tcp", "shm+mpi", or "none" for a job of one
  int rank = 0;

  // Of the ranks of this host; null: nothing but their connections tells of their death.
  [[nodiscard]] Witness* witness() const {
    return memory.window != nullptr ? memory.window.get() : watch.get();
  }
};

// Meets the other ranks and connects to them. Rank 0's values of the options that shape plans are
// put into `config`; a rank that differs gets one warning. Blocks up to start_timeout_ms.
Result<Road> build_road(Config& config, Logger& logger);

}  // namespace kolo::internal
