#include "transport/process_watch.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

namespace kolo::internal {
namespace {

Status lost_at_start(const std::vector<int>& ranks, const std::string& host) {
  std::string who;
  for (const int rank : ranks) who += (who.empty() ? "rank " : ", rank ") + std::to_string(rank);
  if (ranks.size() == 1) {
    return peer_lost(who + " on " + host +
                     " is lost: its process ended during kolo_init; see the output of that rank "
                     "for the cause");
  }
  return peer_lost(who + " on " + host +
                   " are lost: their processes ended during kolo_init; see the output of the one "
                   "that was first for the cause");
}

}  // namespace

std::string pid_space() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat space {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &space) != 0) return "";
  return boot + "/" + std::to_string(space.st_ino);
}

ProcessWatch::ProcessWatch(const PeerTable& table, int self) : table_(table) {
  const PeerInfo& own = table.peers[static_cast<std::size_t>(self)];
  if (own.pid_space.empty()) return;
  for (const PeerInfo& peer : table.peers) {
    const bool is_seen = peer.host_index == own.host_index && peer.pid_space == own.pid_space;
    if (is_seen && peer.rank != self && peer.pid > 0 && peer.pid != own.pid) watch(peer);
  }
}

void ProcessWatch::watch(const PeerInfo& peer) {
  if (!epoll_.is_open()) epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  // What is always readable stands for a process that is no more.
  if (!process.is_open() && errno == ESRCH) process.reset(::eventfd(1, EFD_CLOEXEC));
  if (!process.is_open()) return;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = static_cast<std::uint32_t>(peer.rank);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, process.get(), &event) != 0) return;
  processes_.push_back(std::move(process));
}

Status ProcessWatch::lost() const {
  if (!lost_.is_ok() || processes_.empty()) return lost_;
  std::vector<epoll_event> events(processes_.size());
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  if (count <= 0) return lost_;
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) {
    ranks.push_back(static_cast<int>(events[static_cast<std::size_t>(i)].data.u32));
  }
  std::ranges::sort(ranks);
  const auto first = static_cast<std::size_t>(ranks.front());
  lost_ = lost_at_start(ranks, table_.peers[first].host);
  return lost_;
}

}  // namespace kolo::internal
