// The TCP road: builds the full mesh of authenticated connections of one meeting.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/fabric.h"
#include "transport/meeting_watch.h"
#include "transport/poller.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {

struct TcpOptions {
  int streams = 2;                     // data connections per pair of ranks; 0: control only
  std::vector<std::string> addresses;  // to listen on: "127.0.0.1" for a single-host job
  Nanos start_timeout{};               // for everything here together
  bool checksum = false;               // of all data, the same on all ranks
  // The loss of a rank ends the making of the mesh. Null: nobody watches.
  MeetingWatch* watch = nullptr;
};

// Sockets bound and listening before the meeting, so that their endpoints can be announced.
// They serve one tcp_connect(), which closes them.
class TcpListener {
 public:
  static Result<std::unique_ptr<TcpListener>> open(const std::vector<std::string>& addresses);
  virtual ~TcpListener() = default;
  [[nodiscard]] virtual std::vector<std::string> endpoints() const = 0;
};

// Connects this rank to every other one in `table`: `streams` data channels per pair, and control
// connections member <-> leader and leader <-> root. Blocks up to options.start_timeout. All
// descriptors are added to `poller`, which must outlive the fabric.
// Errors: TIMED_OUT naming the ranks not connected; PEER_LOST; RESOURCE.
Result<Fabric> tcp_connect(TcpListener& listener, const JobIdentity& identity,
                           const PeerTable& table, int self, const TcpOptions& options,
                           Poller& poller);

}  // namespace kolo::internal
