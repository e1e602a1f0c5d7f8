// A step of the start that all ranks make or none: the mesh (either all ranks have all of their
// connections, or every rank learns which pair lacks one), and whether memory is shared.
//
//   1. Each rank tells its leader, and each leader the root, whether all is well with itself and
//      below.
//   2. The root tells the leaders what has come of it, and they tell their members.
//
// Who speaks to a rank hears of its death from nobody else, and says so before it leaves because of
// it: so all learn of the rank that died first, and none is taken for the cause that has left
// because of it.
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

// `own`: whether all is well with this rank. `linked`: the ranks that `link` reaches; if one is
// missing, `own` is an error. Blocks until all have spoken, or `deadline`.
// The same on all ranks that can be reached: OK; that a rank is lost, PEER_LOST, whatever else is
// wrong; TIMED_OUT, that one has not spoken; else what one of those said with which all is not
// well.
Status agree(ControlLink& link, const std::vector<int>& linked, const PeerTable& table, int self,
             const Status& own, Poller& poller, Nanos deadline);

}  // namespace kolo::internal
