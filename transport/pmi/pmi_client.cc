#include "transport/pmi/pmi_client.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace kolo::internal {
namespace {

constexpr char kCure[] =
    "; start the program with kolorun, or set KOLO_RENDEZVOUS and KOLO_SECRET_FILE";

// Which socket this is: after a close, its number may be somebody else's.
struct Farewell {
  pid_t pid;
  int fd;
  dev_t device;
  ino_t inode;
};

bool is_still(const Farewell& farewell) {
  struct stat now {};
  return ::getpid() == farewell.pid && ::fstat(farewell.fd, &now) == 0 && S_ISSOCK(now.st_mode) &&
         now.st_dev == farewell.device && now.st_ino == farewell.inode;
}

void say_farewell(int, void* argument) {
  const std::unique_ptr<Farewell> farewell(static_cast<Farewell*>(argument));
  if (!is_still(*farewell)) return;  // MPI_Finalize has said it, or this is a forked child
  constexpr std::string_view kLine = "cmd=finalize\n";
  constexpr int kPatienceMs = 1000;
  if (::send(farewell->fd, kLine.data(), kLine.size(), MSG_NOSIGNAL) < 0) return;
  pollfd answer{farewell->fd, POLLIN, 0};
  ::poll(&answer, 1, kPatienceMs);
  ::close(farewell->fd);  // so that nobody says it twice
}

Result<Farewell> farewell_at(int fd) {
  struct stat now {};
  if (::fstat(fd, &now) != 0 || !S_ISSOCK(now.st_mode)) {
    return invalid_argument("PMI_FD=" + std::to_string(fd) +
                            " is not the launcher's socket: inherited from another program, or "
                            "MPI_Finalize has closed it" +
                            kCure);
  }
  return Farewell{::getpid(), fd, now.st_dev, now.st_ino};
}

int remaining_ms(Nanos deadline) {
  const Nanos left = deadline - SteadyClock().now();
  if (left <= 0ns) return 0;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1;
  return static_cast<int>(std::min<std::int64_t>(ms, 1 << 30));
}

}  // namespace

Result<PmiClient> PmiClient::greet(int fd, Nanos limit) {
  PmiClient client(fd, SteadyClock().now() + limit);
  if (auto is_socket = farewell_at(fd); !is_socket) return is_socket.status();
  auto hello = client.ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init");
  if (!hello) return hello.status();
  if (hello->find("pmi_version").value_or("") != "1" || !hello->is_success()) {
    return invalid_argument(std::string("the launcher does not speak PMI-1") + kCure);
  }
  auto maxes = client.ask("cmd=get_maxes\n", "maxes");
  if (!maxes) return maxes.status();
  constexpr int kMost = static_cast<int>(kMaxPmiLineBytes) / 2;
  client.max_key_ = static_cast<std::size_t>(maxes->number("keylen_max", 1 << 30).value_or(0));
  client.max_value_ = static_cast<std::size_t>(maxes->number("vallen_max", 1 << 30).value_or(0));
  client.max_key_ = std::min<std::size_t>(client.max_key_, kMost);
  client.max_value_ = std::min<std::size_t>(client.max_value_, kMost);
  auto store = client.ask("cmd=get_my_kvsname\n", "my_kvsname");
  if (!store) return store.status();
  client.store_ = store->find("kvsname").value_or("");
  if (!is_pmi_word(client.store_) || client.store_.size() > kMost / 2) {
    return invalid_argument(std::string("the launcher names no key-value store") + kCure);
  }
  return client;
}

Result<std::optional<std::string>> PmiClient::get(std::string_view key) {
  auto line = ask("cmd=get kvsname=" + store_ + " key=" + std::string(key) + "\n", "get_result");
  if (!line) return line.status();
  if (!line->is_success()) return std::optional<std::string>();
  return std::optional(std::string(line->find("value").value_or("")));
}

Status PmiClient::put(std::string_view key, std::string_view value) {
  if (!is_pmi_word(key) || !is_pmi_word(value) || key.size() >= max_key_ ||
      value.size() >= max_value_) {
    return invalid_argument("the launcher's store takes keys of " + std::to_string(max_key_) +
                            " and values of " + std::to_string(max_value_) +
                            " bytes without blanks, not " + std::string(key) + " with " +
                            std::to_string(value.size()) + " bytes" + kCure);
  }
  auto line = ask("cmd=put kvsname=" + store_ + " key=" + std::string(key) +
                      " value=" + std::string(value) + "\n",
                  "put_result");
  if (!line) return line.status();
  if (line->is_success()) return Status::ok();
  return resource_error("the launcher does not store " + std::string(key) + ": " +
                        std::string(line->find("msg").value_or("no reason given")) + kCure);
}

Status PmiClient::barrier() {
  auto line = ask("cmd=barrier_in\n", "barrier_out");
  if (!line) return line.status();
  return line->is_success() ? Status::ok()
                            : resource_error("the launcher's barrier failed" + std::string(kCure));
}

Status PmiClient::promise_farewell() {
  auto found = farewell_at(fd_);
  if (!found) return found.status();
  auto farewell = std::make_unique<Farewell>(*found);
  if (::on_exit(say_farewell, farewell.get()) != 0) return resource_error("out of memory");
  static_cast<void>(farewell.release());  // the handler's
  return Status::ok();
}

Result<PmiLine> PmiClient::ask(const std::string& request, std::string_view answer) {
  KOLO_RETURN_IF_ERROR(send(request));
  auto text = receive();
  if (!text) return text.status();
  auto line = PmiLine::parse(*text);
  if (line && line->command() != answer) {
    return invalid_argument("the launcher answered '" + std::string(line->command()) +
                            "' where PMI-1 has '" + std::string(answer) + "'" + kCure);
  }
  return line;
}

Status PmiClient::send(const std::string& line) {
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t sent = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      return resource_error(std::string("the launcher cannot be reached at PMI_FD: ") +
                            std::strerror(errno) +
                            " (after MPI_Finalize it takes nothing more: call kolo_init before)");
    }
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
  return Status::ok();
}

// One line. There is nothing behind it, as nothing has been asked.
Result<std::string> PmiClient::receive() {
  std::string line;
  std::array<char, 512> buffer{};
  while (true) {
    pollfd readable{fd_, POLLIN, 0};
    const int ready = ::poll(&readable, 1, remaining_ms(deadline_));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      return timed_out(
          "the launcher (PMI_FD) does not answer within start_timeout_ms: some rank has not called "
          "kolo_init, or the launcher has ended; see that all ranks call it, or raise "
          "KOLO_START_TIMEOUT_MS");
    }
    const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return resource_error("the launcher has closed PMI_FD" + std::string(kCure));
    line.append(buffer.data(), static_cast<std::size_t>(got));
    const std::size_t end = line.find('\n');
    if (end == std::string::npos && line.size() <= kMaxPmiLineBytes) continue;
    if (end + 1 == line.size()) return line.substr(0, end);
    return invalid_argument("the launcher sent more than the one line that was asked for" +
                            std::string(kCure));
  }
}

}  // namespace kolo::internal
