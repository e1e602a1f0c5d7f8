// Any packet, with any number of descriptors, as a note of a host's meeting: a note whose status
// and text are within their bounds, or an error; no descriptor stays open. The first byte says how
// many descriptors come along; a packet that begins with 'N' has the note's magic put in front.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "transport/shm/local_socket.h"

using namespace kolo::internal;

namespace {

constexpr std::size_t kMostDescriptors = 4;

void send_packet(int socket, const std::string& packet, int descriptor, std::size_t count) {
  iovec part{const_cast<char*>(packet.data()), packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (count > 0) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &descriptor, sizeof(int));
    }
  }
  if (::sendmsg(socket, &header, MSG_NOSIGNAL) < 0) std::abort();
}

int lowest_free_descriptor() {
  const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return next.get();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMaxPacketBytes = 4096;
  if (size < 2 || size > kMaxPacketBytes) return 0;
  std::string packet(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (packet[0] == 'N') {  // as far as a hostile peer gets by copying
    Note note = make_note(NoteKind::kPeer, 1, Status::ok());
    std::memcpy(reinterpret_cast<char*>(&note) + sizeof note.magic, packet.data() + 1,
                std::min(packet.size() - 1, sizeof note - sizeof note.magic));
    packet.assign(reinterpret_cast<const char*>(&note), sizeof note);
  }
  const int free_before = lowest_free_descriptor();
  {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      return 0;
    const UniqueFd peer(ends[0]);
    const UniqueFd own(ends[1]);
    send_packet(peer.get(), packet, peer.get(), data[0] % (kMostDescriptors + 1));
    const auto received = receive_note(own.get(), local_now());
    if (received) {
      const Status status = status_of(received->note);
      if (status.text().size() > sizeof received->note.text + 64) std::abort();
      static_cast<void>(status.to_string());
    } else if (received.status().text().empty()) {
      std::abort();
    }
  }
  if (lowest_free_descriptor() != free_before) std::abort();
  return 0;
}
