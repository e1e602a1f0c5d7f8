#include "tests/chaos/shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

// Each function below stands in front of the C library's of the same name.
namespace {

std::atomic<const char*> failing{nullptr};
std::atomic<int> left{0};
std::atomic<int> fired{0};
std::atomic<long long> ahead_ns{0};

struct Death {
  std::atomic<const char*> call{nullptr};
  std::atomic<int> left{0};
  void (*before)() = nullptr;
} death;

void pass(const char* name) {
  const char* wanted = death.call.load();
  if (wanted == nullptr || strcmp(wanted, name) != 0 || death.left.fetch_sub(1) != 1) return;
  death.before();
  kill(getpid(), SIGKILL);
}

bool fails(const char* name) {
  pass(name);
  const char* wanted = failing.load();
  if (wanted == nullptr || strcmp(wanted, name) != 0 || left.fetch_sub(1) != 1) return false;
  fired = 1;
  return true;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

template <typename Result, typename... Arguments>
Result call(const char* name, int error, Result failure, Arguments... arguments) {
  if (fails(name)) {
    errno = error;
    return failure;
  }
  return next<Result (*)(Arguments...)>(name)(arguments...);
}

}  // namespace

extern "C" {

void chaos_shim_fail(const char* name, int nth) {
  left = nth;
  failing = name;
}
int chaos_shim_fired() { return fired; }
void chaos_shim_die(const char* name, int nth, void (*before)()) {
  death.before = before;
  death.left = nth;
  death.call = name;
}
void chaos_shim_set_clock(long long ns) { ahead_ns = ns; }

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (fails("open")) {
    errno = EMFILE;
    return -1;
  }
  return next<int (*)(const char*, int, ...)>("open")(path, flags, mode);
}

int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && fails("fcntl")) {
    errno = EMFILE;
    return -1;
  }
  return next<int (*)(int, int, ...)>("fcntl")(fd, command, argument);
}

FILE* fopen(const char* path, const char* mode) {
  return call<FILE*>("fopen", EMFILE, nullptr, path, mode);
}
int socket(int domain, int type, int protocol) noexcept {
  return call("socket", EMFILE, -1, domain, type, protocol);
}
int accept4(int fd, sockaddr* address, socklen_t* bytes, int flags) {
  return call("accept4", EMFILE, -1, fd, address, bytes, flags);
}
int bind(int fd, const sockaddr* address, socklen_t bytes) noexcept {
  return call("bind", ENOMEM, -1, fd, address, bytes);
}
int listen(int fd, int backlog) noexcept {
  pass("listen");
  return next<int (*)(int, int)>("listen")(fd, backlog);
}
int connect(int fd, const sockaddr* address, socklen_t bytes) {
  pass("connect");
  return next<int (*)(int, const sockaddr*, socklen_t)>("connect")(fd, address, bytes);
}
ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  pass("send");
  return next<ssize_t (*)(int, const void*, size_t, int)>("send")(fd, data, bytes, flags);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  pass("sendmsg");
  return next<ssize_t (*)(int, const msghdr*, int)>("sendmsg")(fd, message, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  pass("recvmsg");
  return next<ssize_t (*)(int, msghdr*, int)>("recvmsg")(fd, message, flags);
}
int dup(int fd) noexcept { return call("dup", EMFILE, -1, fd); }
int eventfd(unsigned count, int flags) noexcept {
  return call("eventfd", EMFILE, -1, count, flags);
}
int epoll_create1(int flags) noexcept { return call("epoll_create1", EMFILE, -1, flags); }
int epoll_ctl(int epoll, int op, int fd, epoll_event* event) noexcept {
  if (op != EPOLL_CTL_ADD) {
    return next<int (*)(int, int, int, epoll_event*)>("epoll_ctl")(epoll, op, fd, event);
  }
  return call("epoll_ctl", ENOSPC, -1, epoll, op, fd, event);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return call("memfd_create", EMFILE, -1, name, flags);
}
void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  return call("mmap", ENOMEM, MAP_FAILED, at, bytes, protection, flags, fd, offset);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  if (fails("pthread_create")) return EAGAIN;
  return next<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>(
      "pthread_create")(thread, attributes, body, argument);
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const int result = next<int (*)(clockid_t, timespec*)>("clock_gettime")(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += ahead_ns / 1'000'000'000;
  }
  return result;
}
int gettimeofday(timeval* now, void* zone) noexcept {
  const int result = next<int (*)(timeval*, void*)>("gettimeofday")(now, zone);
  if (result == 0) now->tv_sec += ahead_ns / 1'000'000'000;
  return result;
}
time_t time(time_t* now) noexcept {
  timespec exact{};
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now != nullptr) *now = exact.tv_sec;
  return exact.tv_sec;
}

}  // extern "C"
