// Windows of shared memory between the processes (or threads) of one host.
//
// Needs no privilege, no /dev/shm and no file: descriptors of sealed memory go over an abstract
// Unix socket, and nothing is left when processes end, however they end. So ranks must share a
// network namespace; mount and pid namespaces do not matter.
//
// Trust: peers of the same user only, who prove the job's secret to each other before anything
// else is read.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "transport/meeting_watch.h"
#include "transport/rendezvous/rendezvous.h"
#include "transport/window.h"

namespace kolo::internal {

struct ShmOptions {
  int rank = 0;  // place among the host's ranks
  int size = 1;  // at most kMaxLocalRanks
  // Job, generation and host index: what only these ranks have in common. Never used twice.
  std::string place;
  JobIdentity identity;
  std::size_t bytes = 0;  // of each segment, equal on all; rounded up to pages. Sparse
  // For the whole meeting.
  Nanos limit = 30s;
  // The meeting is given up earlier when for so long nobody new appears: a rank that finds nobody
  // at the place, or a leader (rank 0) to whom no further rank comes. That is what happens when
  // ranks are in different network namespaces, so a caller that can do without shared memory wants
  // it short; but ranks that are merely started late, on a busy host, must get through. Callers who
  // have met at the rendezvous just before are milliseconds apart.
  Nanos quiet = 5s;
  // The loss of a rank ends the meeting at once. Null: connections tell, and the limits. Must
  // outlive the meeting.
  MeetingWatch* watch = nullptr;
};

// All `size` ranks call it. All get a window, or all an error, which names the rank that could not:
//   RESOURCE    no memory, address space or descriptors, here or on another of these ranks
//   TIMED_OUT   they could not meet
//   PEER_LOST   a rank ended meanwhile; by `watch`, with its number and host
//   INVALID_ARGUMENT  size or bytes differ; another job or secret
// One exception: a rank whose own limit passes just while the last word is on its way to it fails
// alone. So the caller lets ranks tell each other over their control links.
Result<std::unique_ptr<Window>> meet_shm(const ShmOptions& options);

// The same meeting for ranks that share no data (options.bytes does not matter): each shows the
// others a segment with no more in it than what tells of its death.
Result<std::unique_ptr<Witness>> meet_to_watch(const ShmOptions& options);

}  // namespace kolo::internal
