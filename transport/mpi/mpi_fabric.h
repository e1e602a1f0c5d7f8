// The MPI road: channels over MPI beside a fabric's control link, which stays what it was: MPI
// carries data only.
//
// MPI has no descriptor that tells of an arrival: while an operation is under way, its channels
// must be polled.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "transport/fabric.h"
#include "transport/mpi/mpi_world.h"

namespace kolo::internal {

// channels[stream][peer] of rank `self`, over a world that has its communicator.
// Errors: UNSUPPORTED where MPI has too few tags for so many streams.
Result<std::vector<std::vector<std::unique_ptr<Channel>>>> mpi_channels(
    const std::shared_ptr<MpiWorld>& world, const PeerTable& table, int self, int streams);

}  // namespace kolo::internal
