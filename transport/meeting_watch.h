// MeetingWatch: tells the ranks that still connect to each other, when neither shared memory nor
// connections between all of them tell of it yet, that one of them is lost.
//
// The rendezvous tells (transport/rendezvous): it holds a connection with every rank of the job,
// on whatever host, so it sees who was the first to leave, and those that leave because of it come
// later.
#pragma once

#include "base/clock.h"
#include "base/status.h"

namespace kolo::internal {

// No rank may have left in good order while somebody still asks. One thread.
class MeetingWatch {
 public:
  virtual ~MeetingWatch() = default;
  // Readable as soon as lost() may be an error (level-triggered).
  [[nodiscard]] virtual int descriptor() = 0;
  // PEER_LOST, with rank and host of the first one that was lost; OK: nothing is known of any.
  // Blocks for up to `patience` until something is.
  [[nodiscard]] virtual Status lost(Nanos patience = Nanos(0)) = 0;
};

// Whose connection has ended may have left because of another rank: what the meeting says of it,
// for which a moment is waited; else, and where `seen` is no PEER_LOST, `seen`. `watch` may be
// null.
[[nodiscard]] Status cause_of(const Status& seen, MeetingWatch* watch);

}  // namespace kolo::internal
