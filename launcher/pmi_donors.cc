#include "launcher/pmi_donors.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/options.h"
#include "launcher/program.h"
#include "launcher/spawn.h"
#include "launcher/verdict.h"

namespace kolo::internal {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::size_t kMaxDonationBytes = std::size_t{8} << 10;
constexpr std::size_t kMaxLastWords = 2000;
constexpr Nanos kPatience = 2s;  // with mpiexec, once its donors may go

bool is_of_mpi(std::string_view entry) {
  return entry.starts_with("PMI_") || entry.starts_with("MPI_LOCAL") ||
         entry.starts_with("MPIR_CVAR_");
}

struct Address {
  sockaddr_un raw{};
  socklen_t bytes = 0;
};

// A name in the abstract namespace: no file, and gone with its socket.
Address abstract_address(std::string_view name) {
  Address address;
  address.raw.sun_family = AF_UNIX;
  const std::size_t count = std::min(name.size(), sizeof address.raw.sun_path - 1);
  std::copy_n(name.begin(), count, address.raw.sun_path + 1);
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return address;
}

std::string random_name() {
  unsigned long long number[2] = {};
  if (::getrandom(number, sizeof number, 0) != sizeof number) return "";
  return "kolo-donors-" + std::to_string(number[0]) + "-" + std::to_string(number[1]);
}

bool is_of_this_user(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
         peer.uid == ::getuid();
}

union Control {  // room for one descriptor
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

// The bytes and descriptor of one message; no descriptor if there was none.
std::string receive_message(int socket, UniqueFd& descriptor) {
  std::string text(kMaxDonationBytes, '\0');
  iovec part{text.data(), text.size()};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (got > 0 && header != nullptr && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int number = -1;
    memcpy(&number, CMSG_DATA(header), sizeof number);
    descriptor.reset(number);
  }
  return text;
}

bool send_message(int socket, std::string& text, int descriptor) {
  iovec part{text.data(), text.size()};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

std::string path_of_this_program() {
  std::string path(PATH_MAX, '\0');
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
  return path;
}

}  // namespace

bool wants_mpi(const Environment& environment) {
  const auto transport = find_variable(environment, "KOLO_TRANSPORT");
  return transport == "mpi" || transport == "shm+mpi";
}

Result<Donation> read_donation(std::string_view bytes, int size) {
  Donation donation;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find('\0'), bytes.size());
    const std::string_view entry = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    if (is_valid_entry(entry) && is_of_mpi(entry) && !entry.starts_with("PMI_FD=")) {
      donation.variables.emplace_back(entry);
    }
  }
  long long rank = -1;
  const auto text = find_variable(donation.variables, "PMI_RANK");
  if (!text || !parse_number(std::string(*text), 0, size - 1, rank)) {
    return invalid_argument("a process that mpiexec started has no rank of this job");
  }
  donation.rank = static_cast<int>(rank);
  return donation;
}

struct PmiDonors::Donor {
  Donor(asio::io_context& io, int fd) : socket(io, fd) {}
  asio::posix::stream_descriptor socket;
};

PmiDonors::PmiDonors(asio::io_context& io, int size, Events events)
    : io_(io),
      size_(size),
      events_(std::move(events)),
      listener_(io),
      words_(io),
      donations_(static_cast<std::size_t>(size)),
      missing_(size) {}

PmiDonors::~PmiDonors() {
  if (mpiexec_ > 0 && !ended_) ::kill(-mpiexec_, SIGKILL);
}

Status PmiDonors::start(const Environment& environment) {
  const std::string name = random_name();
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address = abstract_address(name);
  if (name.empty() || !listener.is_open() ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.raw), address.bytes) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0) {
    return resource_error(std::string("cannot listen for mpiexec's processes: ") + strerror(errno));
  }
  auto words = make_pipe();
  if (!words) return words.status();
  SpawnRequest request;
  request.arguments = {
      kMpiexec,      "-launcher", "fork", "-n", std::to_string(size_), path_of_this_program(),
      "--pmi-donor", name};
  request.environment = environment;
  request.out = words->write.get();
  request.err = words->write.get();
  request.dies_with_parent = true;
  const Spawned child = spawn(request);
  if (child.error_number != 0) {
    return resource_error(explain_exec_error(kMpiexec, child.error_number).error +
                          "; MPI as a road needs it: install the Debian package mpich");
  }
  mpiexec_ = child.pid;
  listener_.assign(listener.release());
  words_.assign(words->read.release());
  accept_more();
  read_last_words();
  return Status::ok();
}

void PmiDonors::accept_more() {
  listener_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const error_code& error) {
    if (error) return;
    UniqueFd fd(
        ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.is_open() && is_of_this_user(fd.get())) {
      donors_.push_back(std::make_unique<Donor>(io_, fd.release()));
      take(*donors_.back());
    }
    accept_more();
  });
}

void PmiDonors::take(Donor& donor) {
  const auto on_message = [this, &donor](const error_code& error) {
    if (error || told_) return;
    UniqueFd socket;
    const std::string text = receive_message(donor.socket.native_handle(), socket);
    auto donation = read_donation(text, size_);
    if (!donation) return fail(donation.status().text());
    Donation& place = donations_[static_cast<std::size_t>(donation->rank)];
    if (!socket.is_open() || place.socket.is_open())
      return fail("mpiexec's processes are mixed up");
    place = *std::move(donation);
    place.socket = std::move(socket);
    if (--missing_ > 0) return;
    told_ = true;
    events_.ready(std::move(donations_));
  };
  donor.socket.async_wait(asio::posix::stream_descriptor::wait_read, on_message);
}

void PmiDonors::read_last_words() {
  words_.async_read_some(asio::buffer(buffer_), [this](const error_code& error, std::size_t bytes) {
    if (error) return;
    for (std::size_t i = 0; i < bytes && last_words_.size() < kMaxLastWords; ++i) {
      last_words_ += buffer_[i] == '\n' ? ' ' : buffer_[i];
    }
    read_last_words();
  });
}

void PmiDonors::fail(const std::string& why) {
  if (std::exchange(told_, true)) return;
  events_.failed(why);
}

void PmiDonors::release() {
  if (released_at_ == Nanos{}) released_at_ = SteadyClock().now();
  error_code ignored;
  listener_.close(ignored);
  for (const auto& donor : donors_) donor->socket.close(ignored);
}

bool PmiDonors::is_gone(Nanos now) {
  int status = 0;
  if (mpiexec_ > 0 && !ended_ && ::waitpid(mpiexec_, &status, WNOHANG) == mpiexec_) {
    ended_ = true;
    error_code ignored;
    words_.close(ignored);
    fail(std::string(kMpiexec) + " has ended (" + describe_status(status) + ") " +
         (last_words_.empty() ? "without a word" : "saying: " + last_words_));
  }
  const bool late = released_at_ != Nanos{} && now > released_at_ + kPatience;
  if (mpiexec_ > 0 && !ended_ && late) ::kill(-mpiexec_, SIGKILL);
  return ended_ || mpiexec_ == 0;
}

int run_pmi_donor(const std::string& name, const Environment& environment) {
  const auto number = find_variable(environment, "PMI_FD");
  long long descriptor = -1;
  if (!number || !parse_number(std::string(*number), 0, INT_MAX, descriptor)) {
    return kExitUsage;
  }
  std::string text;
  for (const std::string& entry : environment) {
    if (is_of_mpi(entry)) text.append(entry).push_back('\0');
  }
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const Address address = abstract_address(name);
  UniqueFd pmi(static_cast<int>(descriptor));
  if (!socket.is_open() || text.size() > kMaxDonationBytes ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.raw), address.bytes) !=
          0 ||
      !send_message(socket.get(), text, pmi.get())) {
    return kExitOwnFailure;
  }
  pmi.reset();  // the rank's alone from here on
  char byte = 0;
  while (::read(socket.get(), &byte, 1) < 0 && errno == EINTR) {
  }
  return 0;
}

}  // namespace kolo::internal
