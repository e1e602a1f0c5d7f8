// What a context makes of its host's shared memory: the window, and what is carved from it: the
// slot board, lanes for the streams and for process sets, and the arena of kolo_alloc.
//
// With context_road, the only place where core names concrete back ends.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "base/status.h"
#include "coordinator/slot_board.h"
#include "transport/arena.h"
#include "transport/fabric.h"
#include "transport/meeting_watch.h"
#include "transport/poller.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {

struct SharedMemory {
  std::unique_ptr<Window> window;  // of this host's ranks, in rank order
  std::unique_ptr<SlotBoard> board;
  std::vector<std::size_t> lanes;      // offsets, by stream
  std::vector<std::size_t> set_lanes;  // reserved for process sets, without memory
  std::unique_ptr<Arena> arena;
};

// Who meets the others, and what sees them end meanwhile. Of references that outlive the call.
struct RankAtStart {
  const JobIdentity& identity;
  int rank;
  MeetingWatch& watch;
};

// Meets the ranks of this host, and carves. Blocks up to `limit`, which counts for all ranks; every
// rank of the job must call it, also one that is alone on its host. Nothing (and one warning) when
// sharing was not possible on some host and is not insisted on (transport=shm): then no host
// shares. Nothing either when no two ranks are on one host.
// Errors: as meet_shm() gives them, if insisted on; PEER_LOST, TIMED_OUT.
Result<SharedMemory> share_memory(const Config& config, const RankAtStart& self, Fabric& fabric,
                                  Nanos limit, Poller& poller, Logger& logger);

// Where the ranks of this host share no memory: what tells them at once that one of them has died.
// Null, and nothing is lost but speed, where they cannot meet for it (other network namespaces,
// something lacks), or this one is alone on its host. Blocks up to `limit`, and not for long where
// others do not come.
std::unique_ptr<Witness> watch_each_other(const RankAtStart& self, const PeerTable& table,
                                          Nanos limit, Logger& logger);

}  // namespace kolo::internal
