#include "transport/shm/local_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace kolo::internal {
namespace {

constexpr std::uint32_t kMagic = 0x4d4f4c4b;  // "KLOM"
constexpr std::size_t kMaxDescriptors = 2;
constexpr std::size_t kControlBytes = CMSG_SPACE(kMaxDescriptors * sizeof(int));

struct LocalAddress {
  explicit LocalAddress(const std::string& place) {
    const std::string name = local_name(place);
    address.sun_family = AF_UNIX;
    // A zero byte first makes it abstract.
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t bytes = 0;
};

Status gone() { return peer_lost("a rank of this host left while its ranks were meeting"); }
Status late() { return timed_out("a rank of this host did not answer in time"); }

// poll() passes over a descriptor that is none.
pollfd news_of(MeetingWatch* watch) {
  return {watch == nullptr ? -1 : watch->descriptor(), POLLIN, 0};
}

// Takes ownership of the descriptors that came with a packet.
void adopt(msghdr& header, Received& received) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      (received.memory.is_open() ? received.bell : received.memory).reset(fd);
    }
  }
}

}  // namespace

Note make_note(NoteKind kind, int rank, const Status& status) {
  Note note{};
  note.magic = kMagic;
  note.kind = kind;
  note.rank = rank;
  note.code = static_cast<std::int32_t>(status.code());
  note.text_bytes = static_cast<std::uint32_t>(std::min(status.text().size(), note.text.size()));
  std::copy_n(status.text().begin(), note.text_bytes, note.text.begin());
  return note;
}

Status status_of(const Note& note) {
  if (note.code == 0) return Status::ok();
  return {static_cast<StatusCode>(note.code),
          std::string(note.text.data(), std::min<std::size_t>(note.text_bytes, note.text.size()))};
}

Result<UniqueFd> open_local_socket() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) {
    return resource_error(std::string("cannot open a Unix socket for sharing memory: ") +
                          std::strerror(errno) + "; raise the limit of open files (ulimit -n)");
  }
  return socket;
}

// A hash: places may be long, and say nothing to others.
std::string local_name(const std::string& place) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const Digest digest = sha256(place);
  std::string name = "kolo-";
  for (const std::byte byte : std::span(digest).first<20>()) {
    name += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    name += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return name;
}

Status listen_locally(int socket, const std::string& place) {
  const LocalAddress address(place);
  if (::bind(socket, address.get(), address.bytes) != 0 || ::listen(socket, SOMAXCONN) != 0) {
    return resource_error(std::string("cannot listen where the ranks of this host meet: ") +
                          std::strerror(errno) +
                          "; is another program of the same job and generation running?");
  }
  return Status::ok();
}

int connect_locally(int socket, const std::string& place) {
  const LocalAddress address(place);
  return ::connect(socket, address.get(), address.bytes) == 0 ? 0 : errno;
}

bool peer_has_our_user(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
         peer.uid == ::geteuid();
}

Nanos local_now() { return std::chrono::steady_clock::now().time_since_epoch(); }

void pause_for(Nanos time, MeetingWatch* watch) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time).count();
  pollfd watched = news_of(watch);
  ::poll(&watched, 1, static_cast<int>(ms));
}

bool wait_for(int socket, short events, const Patience& patience) {
  while (true) {
    const Nanos left = std::max(Nanos::zero(), patience.deadline - local_now());
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    pollfd watched[] = {{socket, events, 0}, news_of(patience.watch)};
    const int count = ::poll(watched, 2, static_cast<int>(std::min<std::int64_t>(ms, INT_MAX)));
    if (count > 0 && watched[0].revents != 0) return true;  // what was said before an end counts
    if (count > 0 && !patience.watch->lost().is_ok()) return false;
    if (left == Nanos::zero() && count == 0) return false;
  }
}

Status send_note(int socket, const Note& note, std::span<const int> descriptors,
                 const Patience& patience) {
  KOLO_CHECK(descriptors.size() <= kMaxDescriptors);
  iovec part{const_cast<Note*>(&note), sizeof note};
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  while (::sendmsg(socket, &header, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == ETOOMANYREFS) {  // too many descriptors on their way: readers will take some
      if (local_now() >= patience.deadline) return late();
      pause_for(1ms, patience.watch);
    } else if (errno != EAGAIN) {
      return gone();
    } else if (!wait_for(socket, POLLOUT, patience)) {
      return late();
    }
  }
  return Status::ok();
}

Result<Received> receive_note(int socket, const Patience& patience) {
  Received received;
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  iovec part{&received.note, sizeof received.note};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  ssize_t bytes = -1;
  bool was_reset = false;
  while (bytes < 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    bytes = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    if (bytes >= 0 || errno == EINTR) continue;
    if (errno == ECONNRESET && !std::exchange(was_reset, true)) continue;  // its last words follow
    if (errno != EAGAIN) return gone();
    if (!wait_for(socket, POLLIN, patience)) return late();
  }
  adopt(header, received);
  if (bytes == 0) return gone();
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    return resource_error(
        "no room for more descriptors; raise the limit of open files (ulimit -n)");
  }
  if (bytes != sizeof received.note || received.note.magic != kMagic) {
    return Status(StatusCode::kInternal, "a rank of this host sent something else than expected");
  }
  return received;
}

}  // namespace kolo::internal
