#include "transport/shm/shm_meeting.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "transport/handshake.h"
#include "transport/shm/local_socket.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kMaxStrangers = 128;
constexpr Nanos kProofLimit = 2s;

// What a rank says of itself in the handshake; the place stands for the generation.
HandshakeClaim claim_of(const ShmOptions& options) {
  HandshakeClaim claim{options.identity.protocol, HandshakeRole::kMemory, 0, options.rank, 0, 0};
  const Digest digest = sha256(options.place);
  std::memcpy(&claim.generation, digest.data(), sizeof claim.generation);
  return claim;
}

Status other_user() {
  return resource_error(
      "the ranks of this host run as different users, who do not share memory; run them as one");
}

std::string rank_text(int rank) { return "local rank " + std::to_string(rank); }

// ---- one side of the handshake on a socket

// Sends what the handshake has to say. False: the connection is broken.
bool say(int socket, Handshake& handshake) {
  const std::string out = handshake.take_output();
  return out.empty() ||
         ::send(socket, out.data(), out.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(out.size());
}

enum class Heard { kPacket, kNothing, kEnd };

// Reads one packet, of exactly the size that the handshake wants, and answers it.
Heard hear(int socket, Handshake& handshake, Status& status) {
  std::array<std::byte, 128> in;
  KOLO_CHECK(handshake.wanted() <= in.size());
  const ssize_t bytes = ::recv(socket, in.data(), in.size(), MSG_TRUNC);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kNothing;
  if (bytes != static_cast<ssize_t>(handshake.wanted())) return Heard::kEnd;
  status = handshake.feed(std::span(in).first(handshake.wanted()));
  return say(socket, handshake) ? Heard::kPacket : Heard::kEnd;
}

// ---- rank 0

class Leader final : public ShmMeeting {
 public:
  explicit Leader(const ShmOptions& options)
      : options_(options),
        deadline_(local_now() + options.limit),
        ranks_(static_cast<std::size_t>(options.size)),
        shares_(static_cast<std::size_t>(options.size)) {}

  Status listen() {
    Result<UniqueFd> socket = open_local_socket();
    if (!socket) return socket.status();
    listening_ = std::move(*socket);
    return listen_locally(listening_.get(), options_.place);
  }

  Result<std::vector<Share>> exchange(Result<Share> own) override;
  Status agree(const Status& own) override;

 private:
  struct Stranger {
    UniqueFd socket;
    Handshake handshake;
    Nanos deadline;
    bool introduced = false;  // has sent what fits this job
  };

  void gather();
  void accept_some();
  void make_room();
  bool advance(Stranger& stranger);  // false: done with it
  void hear_share(int rank);
  void hand_out();
  void fail(Status why) {
    if (!failure_.is_ok()) return;
    failure_ = cause_of(why, watch());
  }
  [[nodiscard]] MeetingWatch* watch() const { return options_.watch; }
  void give_up_waiting();
  [[nodiscard]] bool complete() const { return missing_ == 0; }
  [[nodiscard]] Refusal admit(const HandshakeClaim& claim) const;
  Status verdict();

  const ShmOptions options_;
  const Nanos deadline_;
  UniqueFd listening_;
  std::list<Stranger> strangers_;  // oldest first
  struct Rank {
    UniqueFd socket;     // once it has proved itself
    bool heard = false;  // its share, or why there is none
  };
  std::vector<Rank> ranks_;
  std::vector<Share> shares_;
  int missing_ = 0;
  Nanos last_arrival_{0};
  Status failure_;
};

Result<std::vector<Share>> Leader::exchange(Result<Share> own) {
  if (own) {
    shares_[0] = std::move(*own);
  } else {
    fail(own.status());
  }
  gather();
  if (failure_.is_ok()) hand_out();
  if (!failure_.is_ok()) return verdict();
  shares_[0] = {};
  return std::move(shares_);
}

// Also when somebody, or this rank, has nothing to share: all are to be told.
void Leader::gather() {
  missing_ = options_.size - 1;
  last_arrival_ = local_now();
  std::vector<pollfd> watched;
  while (!complete()) {
    Nanos until = std::min(deadline_, last_arrival_ + options_.quiet);
    watched.assign(1, {listening_.get(), POLLIN, 0});
    for (const Stranger& stranger : strangers_) {
      watched.push_back({stranger.socket.get(), POLLIN, 0});
      until = std::min(until, stranger.deadline);
    }
    for (const Rank& rank : ranks_) {  // poll() passes over those that are not there
      watched.push_back({rank.heard ? -1 : rank.socket.get(), POLLIN, 0});
    }
    watched.push_back({watch() == nullptr ? -1 : watch()->descriptor(), POLLIN, 0});
    const Nanos left = std::max(Nanos::zero(), until - local_now());
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    const auto count = static_cast<nfds_t>(watched.size());
    if (::poll(watched.data(), count, static_cast<int>(std::min<std::int64_t>(ms, INT_MAX))) < 0) {
      continue;
    }
    const Nanos now = local_now();
    std::size_t at = 1;
    for (auto it = strangers_.begin(); it != strangers_.end();) {
      const bool ready = watched[at++].revents != 0;
      const bool keep = now < it->deadline && (!ready || advance(*it));
      it = keep ? std::next(it) : strangers_.erase(it);
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (watched[at + rank].revents != 0) hear_share(static_cast<int>(rank));
    }
    if (watched[0].revents != 0) accept_some();
    if (watched.back().revents != 0 && !watch()->lost().is_ok()) return fail(watch()->lost());
    if (!complete() && (now >= deadline_ || now >= last_arrival_ + options_.quiet)) {
      return give_up_waiting();
    }
  }
}

void Leader::give_up_waiting() {
  std::string absent;
  for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].heard) absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
  }
  fail(timed_out("local ranks " + absent +
                 " did not come to share memory; are they in another network namespace?"));
}

// Not all at once: those who are here already must get on.
void Leader::accept_some() {
  for (int i = 0; i < 64; ++i) {
    UniqueFd socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_open()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        // The same ranks must still hear of it: what this rank shows is not needed any more.
        fail(
            resource_error("local rank 0 has no descriptors left for its peers; raise the limit "
                           "of open files (ulimit -n)"));
        shares_[0] = {};
        pause_for(10ms);
      }
      return;
    }
    Stranger stranger{
        std::move(socket),
        Handshake::acceptor(
            options_.identity.job, options_.identity.secret, options_.identity.protocol,
            [this](const HandshakeClaim& claim) { return admit(claim); }, random_digest()),
        local_now() + kProofLimit};
    if (!advance(stranger)) continue;
    if (strangers_.size() >= kMaxStrangers) make_room();
    strangers_.push_back(std::move(stranger));
  }
}

// The oldest goes, but rather one who has said nothing.
void Leader::make_room() {
  const auto silent = std::find_if(strangers_.begin(), strangers_.end(),
                                   [](const Stranger& stranger) { return !stranger.introduced; });
  strangers_.erase(silent != strangers_.end() ? silent : strangers_.begin());
}

Refusal Leader::admit(const HandshakeClaim& claim) const {
  const HandshakeClaim mine = claim_of(options_);
  if (claim.role != mine.role) return Refusal::kWrongRole;
  if (claim.generation != mine.generation) return Refusal::kWrongGeneration;
  if (claim.from < 1 || claim.from >= options_.size || claim.to != 0) return Refusal::kWrongRank;
  if (ranks_[static_cast<std::size_t>(claim.from)].socket.is_open()) return Refusal::kDuplicate;
  return Refusal::kNone;
}

bool Leader::advance(Stranger& stranger) {
  Status status;
  const Heard heard = hear(stranger.socket.get(), stranger.handshake, status);
  if (heard == Heard::kEnd || !status) return false;
  if (heard == Heard::kPacket) stranger.introduced = true;
  if (!stranger.handshake.done()) return true;
  if (!peer_has_our_user(stranger.socket.get())) fail(other_user());
  ranks_[static_cast<std::size_t>(stranger.handshake.peer().from)].socket =
      std::move(stranger.socket);
  last_arrival_ = local_now();
  return false;
}

void Leader::hear_share(int rank) {
  Rank& from = ranks_[static_cast<std::size_t>(rank)];
  Result<Received> received = receive_note(from.socket.get(), local_now());
  if (!received && received.status().code() == StatusCode::kTimedOut) return;
  from.heard = true;
  --missing_;
  if (!received) {
    return fail({received.status().code(), rank_text(rank) + ": " + received.status().text()});
  }
  const Note& note = received->note;
  if (Status status = status_of(note); !status) return fail(std::move(status));
  if (note.size != options_.size || note.bytes != options_.bytes) {
    return fail(invalid_argument("ranks of one host want to share different memory: local rank 0 " +
                                 std::to_string(options_.bytes) + " bytes among " +
                                 std::to_string(options_.size) + ", " + rank_text(rank) + " " +
                                 std::to_string(note.bytes) + " among " +
                                 std::to_string(note.size) + "; give all the same KOLO_SHM_BYTES"));
  }
  if (!received->memory.is_open() || !received->bell.is_open()) {
    return fail({StatusCode::kInternal, rank_text(rank) + " sent no descriptors"});
  }
  shares_[static_cast<std::size_t>(rank)] = {std::move(received->memory), std::move(received->bell),
                                             note.nonce};
}

void Leader::hand_out() {
  for (int to = 1; to < options_.size; ++to) {
    for (int of = 0; of < options_.size; ++of) {
      if (of == to) continue;
      const Share& share = shares_[static_cast<std::size_t>(of)];
      Note note = make_note(NoteKind::kPeer, of, Status::ok());
      note.nonce = share.nonce;
      const std::array<int, 2> descriptors{share.memory.get(), share.bell.get()};
      const Status sent = send_note(ranks_[static_cast<std::size_t>(to)].socket.get(), note,
                                    descriptors, {deadline_, watch()});
      if (!sent) return fail({sent.code(), rank_text(to) + ": " + sent.text()});
    }
  }
}

Status Leader::agree(const Status& own) {
  if (!own) fail(own);
  for (int rank = 1; rank < options_.size; ++rank) {
    const Result<Received> received =
        receive_note(ranks_[static_cast<std::size_t>(rank)].socket.get(), {deadline_, watch()});
    if (!received) {
      fail({received.status().code(), rank_text(rank) + ": " + received.status().text()});
    } else if (Status status = status_of(received->note); !status) {
      fail(std::move(status));
    }
  }
  return verdict();
}

Status Leader::verdict() {
  const Note note = make_note(NoteKind::kVerdict, 0, failure_);
  for (const Rank& rank : ranks_) {
    // Who is not there to hear it, or does not read, has its own limit.
    if (rank.socket.is_open()) (void)send_note(rank.socket.get(), note, {}, local_now() + 100ms);
  }
  return failure_;
}

// ---- the others

class Follower final : public ShmMeeting {
 public:
  Follower(const ShmOptions& options, UniqueFd socket)
      : options_(options),
        deadline_(local_now() + options.limit),
        quiet_until_(local_now() + std::min(options.limit, options.quiet)),
        socket_(std::move(socket)) {}

  Result<std::vector<Share>> exchange(Result<Share> own) override;
  Status agree(const Status& own) override;

 private:
  Status find_leader();
  Status connect();
  std::optional<Status> prove();  // nothing: worth another attempt
  [[nodiscard]] Patience patience() const { return {deadline_, options_.watch}; }

  const ShmOptions options_;
  const Nanos deadline_;
  const Nanos quiet_until_;
  UniqueFd socket_;
};

Status from_leader(const Status& why) { return {why.code(), rank_text(0) + ": " + why.text()}; }

Status Follower::find_leader() {
  Nanos pause = 1ms;
  while (true) {
    KOLO_RETURN_IF_ERROR(connect());
    if (const std::optional<Status> proved = prove()) return *proved;
    // Pushed out by strangers, or the leader has gone: again, with a fresh socket.
    socket_.reset();
    pause_for(pause, options_.watch);
    pause = std::min<Nanos>(2 * pause, 50ms);
    Result<UniqueFd> fresh = open_local_socket();
    if (!fresh) return fresh.status();
    socket_ = std::move(*fresh);
  }
}

Status Follower::connect() {
  Nanos pause = 1ms;
  while (const int error = connect_locally(socket_.get(), options_.place)) {
    if (error != ECONNREFUSED && error != EAGAIN && error != EINTR) {
      return resource_error(std::string("cannot reach the other ranks of this host: ") +
                            std::strerror(error));
    }
    if (options_.watch != nullptr) KOLO_RETURN_IF_ERROR(options_.watch->lost());
    if (local_now() >= quiet_until_) {
      return timed_out(
          "nobody serves the place where the ranks of this host meet to share memory; is local "
          "rank 0 in another network namespace?");
    }
    pause_for(pause, options_.watch);
    // A full queue wants no longer pauses, which would let strangers in before.
    if (error == ECONNREFUSED) pause = std::min<Nanos>(2 * pause, 20ms);
  }
  return Status::ok();
}

std::optional<Status> Follower::prove() {
  Handshake handshake = Handshake::connector(options_.identity.job, options_.identity.secret,
                                             claim_of(options_), random_digest());
  if (!say(socket_.get(), handshake)) return std::nullopt;
  while (!handshake.done()) {
    if (!wait_for(socket_.get(), POLLIN, {quiet_until_, options_.watch})) {
      return timed_out("local rank 0 does not answer where the ranks of this host meet");
    }
    Status status;
    const Heard heard = hear(socket_.get(), handshake, status);
    if (!status) return status;
    if (heard == Heard::kEnd) return std::nullopt;
  }
  return Status::ok();
}

Result<std::vector<Share>> Follower::exchange(Result<Share> own) {
  if (Status found = find_leader(); !found) return own ? found : own.status();
  if (!peer_has_our_user(socket_.get())) own = other_user();
  Note note = make_note(NoteKind::kSegment, options_.rank, own.status());
  note.size = options_.size;
  note.bytes = options_.bytes;
  std::array<int, 2> descriptors{-1, -1};
  if (own) {
    note.nonce = own->nonce;
    descriptors = {own->memory.get(), own->bell.get()};
  }
  // If the leader has given up, its verdict is there to be read.
  (void)send_note(socket_.get(), note,
                  own ? std::span<const int>(descriptors) : std::span<const int>(), patience());
  std::vector<Share> shares(static_cast<std::size_t>(options_.size));
  for (int i = 1; i < options_.size; ++i) {
    Result<Received> received = receive_note(socket_.get(), patience());
    // Descriptors that do not fit here are for agree() to tell; the notes behind it come anyway.
    if (!received && received.status().code() == StatusCode::kResource) continue;
    if (!received) return from_leader(received.status());
    const Note& peer = received->note;
    if (peer.kind == NoteKind::kVerdict) return status_of(peer);
    if (peer.kind != NoteKind::kPeer || peer.rank < 0 || peer.rank >= options_.size) {
      return Status(StatusCode::kInternal, "local rank 0 sent something else than expected");
    }
    shares[static_cast<std::size_t>(peer.rank)] = {std::move(received->memory),
                                                   std::move(received->bell), peer.nonce};
  }
  return shares;
}

Status Follower::agree(const Status& own) {
  (void)send_note(socket_.get(), make_note(NoteKind::kMapped, options_.rank, own), {}, patience());
  const Result<Received> received = receive_note(socket_.get(), patience());
  return received ? status_of(received->note) : from_leader(received.status());
}

}  // namespace

Result<std::unique_ptr<ShmMeeting>> ShmMeeting::open(const ShmOptions& options) {
  if (options.rank == 0) {
    auto leader = std::make_unique<Leader>(options);
    KOLO_RETURN_IF_ERROR(leader->listen());
    return std::unique_ptr<ShmMeeting>(std::move(leader));
  }
  Result<UniqueFd> socket = open_local_socket();
  if (!socket) return socket.status();
  return std::unique_ptr<ShmMeeting>(std::make_unique<Follower>(options, std::move(*socket)));
}

}  // namespace kolo::internal
