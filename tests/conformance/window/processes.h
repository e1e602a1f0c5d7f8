// Ranks as processes: forked children with a shared board, and ways to make the kernel refuse
// things to them. The parent must have no threads when it makes children.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace kolo::internal {

inline Nanos now_of_all() { return SteadyClock().now(); }  // the same clock in all processes

inline bool wait_until(const std::function<bool()>& condition, Nanos limit = 20s) {
  const Nanos end = now_of_all() + limit;
  while (!condition()) {
    if (now_of_all() > end) return false;
    std::this_thread::sleep_for(200us);
  }
  return true;
}

// Memory that the parent and its children write: stages reached, times, answers.
class Board {
 public:
  struct Entry {
    std::atomic<int> stage{0};
    std::atomic<std::int64_t> at_ns{0};
    std::atomic<int> code{-1};
    std::array<char, 600> text{};
    void answer(const Status& status) {
      std::snprintf(text.data(), text.size(), "%s", status.text().c_str());
      code.store(static_cast<int>(status.code()));
    }
  };
  static constexpr std::size_t kEntries = 256;

  Board() {
    memory_ =
        ::mmap(nullptr, sizeof(Entries), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    entries_ = new (memory_) Entries();
  }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  ~Board() { ::munmap(memory_, sizeof(Entries)); }

  Entry& operator[](int rank) { return (*entries_)[static_cast<std::size_t>(rank)]; }
  // All ranks from 0 have reached it.
  bool wait_all(int size, int stage, Nanos limit = 20s) {
    return wait_until(
        [&] {
          for (int rank = 0; rank < size; ++rank) {
            if ((*this)[rank].stage.load() < stage) return false;
          }
          return true;
        },
        limit);
  }

 private:
  using Entries = std::array<Entry, kEntries>;
  void* memory_;
  Entries* entries_;
};

// A forked child, which ends with its parent. Its body's failures (false, or a failed expectation)
// become exit code 1.
class Child {
 public:
  explicit Child(const std::function<bool()>& body) {
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // 0: the parent is in another pid namespace.
    if (::getppid() != parent && ::getppid() != 0) ::_exit(2);
    const bool ok = body() && !::testing::Test::HasFailure();
    std::fflush(nullptr);
    ::_exit(ok ? 0 : 1);
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  // The exit code, or -signal; -1000 if it does not end in time.
  int wait(Nanos limit = 60s) {
    int status = 0;
    if (!wait_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, limit)) return -1000;
    pid_ = -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_ = -1;
};

inline int count_entries(const std::string& folder) {
  int count = 0;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(folder, error);
       it != std::filesystem::directory_iterator(); it.increment(error)) {
    ++count;
  }
  return count;
}

// What the kernel does from now on when this process makes that system call; `shared_maps_only`: if
// it is mmap, and maps a file shared.
inline bool filter_call(long call, std::uint32_t verdict, bool shared_maps_only = false) {
  const auto load = [](std::size_t offset) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  };
  const auto answer = [](std::uint32_t value) {
    return sock_filter BPF_STMT(BPF_RET | BPF_K, value);
  };
  std::vector<sock_filter> program{
      load(offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 1, 0),
      answer(SECCOMP_RET_ALLOW)};
  if (shared_maps_only) {
    program.push_back(load(offsetof(seccomp_data, args) + 3 * sizeof(std::uint64_t)));
    program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, MAP_SHARED | MAP_ANONYMOUS));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MAP_SHARED, 1, 0));
    program.push_back(answer(SECCOMP_RET_ALLOW));
  }
  program.push_back(answer(verdict));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0;
}

inline bool refuse(long call, int error, bool shared_maps_only = false) {
  return filter_call(call, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error), shared_maps_only);
}
inline bool die_at(long call) { return filter_call(call, SECCOMP_RET_KILL_PROCESS); }

}  // namespace kolo::internal
