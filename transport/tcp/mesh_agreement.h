// The end of making a mesh: either all ranks have all of their connections, or every rank learns
// which pair lacks one, and none begins to work.
//
//   1. Each rank tells its leader, and each leader the root, whether all is there with itself and
//      below.
//   2. The root tells the leaders what has come of it, and they tell their members.
//
// Cost: one round trip along the tree of control links. One thread.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/control_link.h"
#include "transport/fabric.h"
#include "transport/poller.h"

namespace kolo::internal {

// `own`: whether this rank has all of its connections. `linked`: the ranks that `link` reaches; if
// one is missing, `own` is an error. Blocks until all have spoken, or `deadline`.
// Errors: `own`; else what another rank said; PEER_LOST, TIMED_OUT.
Status agree_on_mesh(ControlLink& link, const std::vector<int>& linked, const PeerTable& table,
                     int self, const Status& own, Poller& poller, Nanos deadline);

}  // namespace kolo::internal
