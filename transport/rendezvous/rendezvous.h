// Rendezvous: where the ranks of a job meet and learn of each other.
//
// One RendezvousServer per job (inside kolorun's agents, or inside rank 0 when ranks are started by
// hand); one RendezvousClient per rank, kept open for the life of its context, so that the server
// sees a rank leave. A job may meet many times (init, shutdown, init again): each meeting is a
// round with its own generation, complete when all `size` ranks have joined it.
//
// Every connection begins with the mutual challenge of transport/handshake.h; bodies are Protobuf
// (rendezvous.proto) in length-bounded frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/fabric.h"
#include "transport/meeting_watch.h"
#include "transport/net/refusals.h"
#include "transport/secret.h"

namespace kolo::internal {

inline constexpr std::uint32_t kProtocolVersion = 1;

inline constexpr std::size_t kMinSecretBytes = 16;

struct JobIdentity {
  std::string job;                            // any text; tells jobs apart in errors
  Secret secret;                              // at least kMinSecretBytes; never logged
  std::uint32_t protocol = kProtocolVersion;  // what this side says of itself
};

// What ends a round beside each rank's own limit: `time`, set by `option` of `owner`.
struct MeetingLimit {
  Nanos time = kNever;
  std::string option = "KOLO_START_TIMEOUT_MS";
  std::string owner = "rank 0";
};

// Pure meeting logic without sockets: shared by the server in one process and by kolorun, which
// receives joins through its agents. One thread.
class Meeting {
 public:
  struct Join {
    std::uint64_t connection = 0;  // chosen by the caller; answers are addressed to it
    std::uint32_t protocol = 0;
    int size = 0;
    PeerInfo peer;
    Nanos limit = kNever;  // how long this rank waits
    Status obstacle;       // why this rank cannot take part
  };
  struct Answer {
    std::uint64_t connection = 0;
    Status status;  // OK: `table` is the complete meeting
    PeerTable table;
  };

  explicit Meeting(int size, MeetingLimit limit = {}) : size_(size), limit_(std::move(limit)) {}
  // Answers due now: none while the meeting is incomplete; an error at once for a rank out of
  // range or already present. What keeps the job from meeting fails the whole round, on all:
  // another size, another protocol number, a rank that cannot take part.
  std::vector<Answer> join(Join join, Nanos now = Nanos(0));
  // The connection ended: its rank may join again. If its meeting was complete, and it is the first
  // to leave it, the others get a second answer, PEER_LOST: those that still connect need it, and
  // those that have begun do not listen.
  std::vector<Answer> left(std::uint64_t connection);
  // The same where nobody else tells whether its process has ended: if it waited, the others do so
  // in vain, and are told.
  std::vector<Answer> lost(std::uint64_t connection);
  // When to call expire(): once the first of those who wait has waited long enough.
  [[nodiscard]] Nanos next_expiry() const;
  // Everyone waiting gets TIMED_OUT with the ranks that are missing, and whose limit it was.
  // `more`: what is known besides.
  std::vector<Answer> expire(const std::string& where, const std::string& more = "");
  [[nodiscard]] std::vector<int> missing() const;
  // Whether somebody has joined the present round: then the start timeout is running.
  [[nodiscard]] bool anyone_waits() const;

 private:
  struct Present {
    std::uint64_t connection;
    PeerInfo peer;
    Nanos limit;
    Nanos deadline;
    bool answered = false;
  };
  [[nodiscard]] Status obstacle_of(const Join& join) const;
  [[nodiscard]] Status check(const Join& join) const;
  std::vector<Answer> fail_round(const Status& why);
  std::vector<Answer> answers_if_complete();

  int size_;
  MeetingLimit limit_;
  std::uint64_t generation_ = 0;
  std::vector<Present> present_;
  Status round_failure_;      // why no rank can meet the others
  std::string refused_;       // the last that was refused in this round, for people
  std::vector<int> untold_;   // ranks that have not heard of it yet
  bool left_by_one_ = false;  // the last complete meeting
};

// What a rank whose job has been ended by another one says of it.
struct Harm {
  int lost_rank = -1;  // -1: no single one
  std::string why;     // for people
  bool operator==(const Harm&) const = default;
};

class RendezvousServer {
 public:
  // Listens on `address` ("127.0.0.1:0" picks a port) and serves on a thread of its own.
  static Result<std::unique_ptr<RendezvousServer>> start(const std::string& address, int size,
                                                         const JobIdentity& identity,
                                                         Nanos start_timeout);
  virtual ~RendezvousServer() = default;
  [[nodiscard]] virtual std::string endpoint() const = 0;   // "127.0.0.1:41234"
  [[nodiscard]] virtual RefusalCounts refused() const = 0;  // until now; any thread
};

// Its news (MeetingWatch) are for as long as the ranks connect.
class RendezvousClient : public MeetingWatch {
 public:
  // Connects, proves the secret, joins, and blocks until the table is complete or `limit` is over.
  // `server`: whose end it is when the rendezvous ends, for people.
  // Errors: TIMED_OUT (names missing ranks and the server's address), INVALID_ARGUMENT (refused:
  // rank already present, other size, other protocol, wrong secret).
  static Result<std::unique_ptr<RendezvousClient>> join(const std::string& endpoint,
                                                        const JobIdentity& identity, int size,
                                                        const PeerInfo& self, Nanos limit,
                                                        const std::string& server = "kolorun");
  // Instead of join(), tells the others why this rank cannot take part: they do not wait for it.
  // Blocks for a moment; nothing depends on it.
  static void decline(const std::string& endpoint, const JobIdentity& identity, int size,
                      const PeerInfo& self, const Status& why);
  ~RendezvousClient() override = default;  // leaves the meeting
  [[nodiscard]] virtual const PeerTable& table() const = 0;
  // This rank's job has been ended by another rank, so that whatever becomes of it now is not the
  // cause: for a launcher that looks for the first failure. Never blocks; only the first counts.
  virtual void tell_harmed(const Harm& harm) = 0;
};

}  // namespace kolo::internal
