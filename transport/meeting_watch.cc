#include "transport/meeting_watch.h"

namespace kolo::internal {
namespace {

// For the way from the rank's end to the rendezvous, which may be on another host, and back.
constexpr Nanos kNewsTime = 250ms;

}  // namespace

Status cause_of(const Status& seen, MeetingWatch* watch) {
  if (seen.code() != StatusCode::kPeerLost || watch == nullptr) return seen;
  const Status lost = watch->lost(kNewsTime);
  return lost.is_ok() ? seen : lost;
}

}  // namespace kolo::internal
