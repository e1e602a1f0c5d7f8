// Local sockets: packets and descriptors between ranks of one host, over abstract Unix-domain
// sockets (SOCK_SEQPACKET), which exist per network namespace and vanish with their last holder.
//
// All descriptors are close-on-exec and non-blocking; waiting is poll() up to a deadline.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/crypto.h"
#include "transport/meeting_watch.h"

namespace kolo::internal {

enum class NoteKind : std::uint32_t { kSegment = 1, kPeer = 2, kMapped = 3, kVerdict = 4 };

// The one message of a meeting; sent only to who has proved itself. Carries a status, and for
// kSegment and kPeer (if the status is OK) two descriptors: memory and bell.
struct Note {
  std::uint32_t magic;
  NoteKind kind;
  std::int32_t rank;
  std::int32_t size;
  std::uint64_t bytes;
  Digest nonce;
  std::int32_t code;
  std::uint32_t text_bytes;
  std::array<char, 512> text;
};
static_assert(std::is_trivially_copyable_v<Note>);

[[nodiscard]] Note make_note(NoteKind kind, int rank, const Status& status);
[[nodiscard]] Status status_of(const Note& note);

struct Received {
  Note note{};
  UniqueFd memory;
  UniqueFd bell;
};

// A socket, and what becomes of it. Statuses: RESOURCE.
[[nodiscard]] Result<UniqueFd> open_local_socket();
// The abstract name that stands for a place, as /proc/net/unix shows it behind an "@".
[[nodiscard]] std::string local_name(const std::string& place);
Status listen_locally(int socket, const std::string& place);
// 0, or the errno of connect().
[[nodiscard]] int connect_locally(int socket, const std::string& place);
[[nodiscard]] bool peer_has_our_user(int socket);

// How long to wait: until a time, or until a rank is lost, which the caller then asks about.
struct Patience {
  Patience(Nanos until, MeetingWatch* news = nullptr) : deadline(until), watch(news) {}
  Nanos deadline;
  MeetingWatch* watch;
};

// Whether `events` (POLLIN or POLLOUT) came in that time.
[[nodiscard]] bool wait_for(int socket, short events, const Patience& patience);
[[nodiscard]] Nanos local_now();
// Whole milliseconds, or until a signal, or until there is news of a rank.
void pause_for(Nanos time, MeetingWatch* watch = nullptr);

// PEER_LOST: it has gone. TIMED_OUT: patience is over. INTERNAL: no packet of kolo's.
Status send_note(int socket, const Note& note, std::span<const int> descriptors,
                 const Patience& patience);
Result<Received> receive_note(int socket, const Patience& patience);

}  // namespace kolo::internal
