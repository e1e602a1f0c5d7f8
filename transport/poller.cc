#include "transport/poller.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/unique_fd.h"

namespace kolo::internal {
namespace {

constexpr int kEventsAtOnce = 64;

// One of the two places to sleep. wake() increments Shared::wakes, then looks at `asleep`; the
// sleeper sets `asleep`, then looks at `wakes`. Both are sequentially consistent, so at least one
// sees the other.
struct Sleeper {
  std::atomic<bool> asleep{false};
  std::uint64_t seen = 0;  // the sleeper's own: wake-ups it knows of
  UniqueFd event;          // registered edge-triggered, so nobody needs to read it
};

Status descriptor_error(const char* what) {
  return resource_error(std::string(what) + " failed: " + std::strerror(errno) +
                        "; raise the limit of open files (ulimit -n)");
}

Status watch(int epoll, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    return descriptor_error("watching a descriptor (epoll_ctl)");
  }
  return Status::ok();
}

// epoll with a limit in nanoseconds; rounds up to milliseconds on kernels before 5.11.
int sleep_on(int epoll, std::array<epoll_event, kEventsAtOnce>& events, Nanos limit) {
  if (limit == kNever) return ::epoll_wait(epoll, events.data(), kEventsAtOnce, -1);
  if (limit < Nanos::zero()) limit = Nanos::zero();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  timespec time{};
  time.tv_sec = seconds.count();
  time.tv_nsec = (limit - seconds).count();
  const int count = ::epoll_pwait2(epoll, events.data(), kEventsAtOnce, &time, nullptr);
  if (count >= 0 || errno != ENOSYS) return count;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  return ::epoll_wait(epoll, events.data(), kEventsAtOnce,
                      static_cast<int>(std::min<std::int64_t>(ms, INT_MAX)));
}

}  // namespace

struct Poller::Shared {
  UniqueFd inner;  // every socket, and the driver's event
  UniqueFd outer;  // `inner` while armed, and the background thread's event
  std::atomic<std::uint64_t> wakes{0};
  Sleeper driver;
  Sleeper background;
  bool armed = false;

  // Whether wake() was called since this sleeper last asked.
  bool take_wakes(Sleeper& sleeper) {
    const std::uint64_t now = wakes.load();
    const bool news = now != sleeper.seen;
    sleeper.seen = now;
    return news;
  }

  bool sleep(Sleeper& sleeper, int epoll, Nanos limit) {
    sleeper.asleep.store(true);
    std::array<epoll_event, kEventsAtOnce> events;
    const int count = take_wakes(sleeper) ? 1 : sleep_on(epoll, events, limit);
    sleeper.asleep.store(false);
    return take_wakes(sleeper) || count > 0;
  }

  static void rouse(Sleeper& sleeper) {
    // The exchange lets many callers of wake() share one write.
    if (!sleeper.asleep.load() || !sleeper.asleep.exchange(false)) return;
    const std::uint64_t one = 1;
    // It can only fail when the counter is full, and then the event is set anyway.
    [[maybe_unused]] const auto written = ::write(sleeper.event.get(), &one, sizeof one);
  }

  void set_armed(bool on) {
    if (armed == on) return;
    armed = on;
    epoll_event event{};
    event.events = on ? EPOLLIN | EPOLLET : 0U;
    KOLO_CHECK(::epoll_ctl(outer.get(), EPOLL_CTL_MOD, inner.get(), &event) == 0);
  }
};

Poller::Poller(std::unique_ptr<Shared> shared) : shared_(std::move(shared)) {}
Poller::Poller(Poller&&) noexcept = default;
Poller& Poller::operator=(Poller&&) noexcept = default;
Poller::~Poller() = default;

Result<Poller> Poller::create() {
  auto shared = std::make_unique<Shared>();
  shared->inner.reset(::epoll_create1(EPOLL_CLOEXEC));
  shared->outer.reset(::epoll_create1(EPOLL_CLOEXEC));
  shared->driver.event.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  shared->background.event.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!shared->inner.is_open() || !shared->outer.is_open() || !shared->driver.event.is_open() ||
      !shared->background.event.is_open()) {
    return descriptor_error("opening the context's poller");
  }
  KOLO_RETURN_IF_ERROR(watch(shared->inner.get(), shared->driver.event.get(), EPOLLIN | EPOLLET));
  KOLO_RETURN_IF_ERROR(
      watch(shared->outer.get(), shared->background.event.get(), EPOLLIN | EPOLLET));
  KOLO_RETURN_IF_ERROR(watch(shared->outer.get(), shared->inner.get(), 0));
  return Poller(std::move(shared));
}

Status Poller::add(int fd) {
  return watch(shared_->inner.get(), fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

void Poller::remove(int fd) { ::epoll_ctl(shared_->inner.get(), EPOLL_CTL_DEL, fd, nullptr); }

bool Poller::poll() {
  std::array<epoll_event, kEventsAtOnce> events;
  const int count = ::epoll_wait(shared_->inner.get(), events.data(), kEventsAtOnce, 0);
  return shared_->take_wakes(shared_->driver) || count > 0;
}

bool Poller::wait(Nanos limit) {
  return shared_->sleep(shared_->driver, shared_->inner.get(), limit);
}

void Poller::wait_background(Nanos limit) {
  shared_->sleep(shared_->background, shared_->outer.get(), limit);
}

void Poller::arm() { shared_->set_armed(true); }
void Poller::disarm() { shared_->set_armed(false); }

void Poller::wake() {
  shared_->wakes.fetch_add(1);
  Shared::rouse(shared_->driver);
  Shared::rouse(shared_->background);
}

// The kernel lists what an epoll watches in lines "tfd: NUMBER ...".
void Poller::close_in_child() const noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fdinfo/%d", shared_->inner.get());
  const int info = ::open(path, O_RDONLY | O_CLOEXEC);
  if (info < 0) return;
  constexpr std::string_view kMark = "tfd:";
  std::size_t matched = 0;  // of the mark; all of it: a number follows
  int fd = -1;
  std::array<char, 4096> text;
  for (ssize_t bytes = 0; (bytes = ::read(info, text.data(), text.size())) > 0;) {
    for (ssize_t i = 0; i < bytes; ++i) {
      const char c = text[static_cast<std::size_t>(i)];
      if (matched < kMark.size()) {
        matched = c == kMark[matched] ? matched + 1 : c == kMark[0] ? 1 : 0;
      } else if (c >= '0' && c <= '9') {
        fd = (fd < 0 ? 0 : fd * 10) + (c - '0');
      } else if (fd >= 0) {
        ::close(fd);
        matched = 0;
        fd = -1;
      }
    }
  }
  ::close(info);
}

void Poller::wake_driver() {
  shared_->wakes.fetch_add(1);
  Shared::rouse(shared_->driver);
}

}  // namespace kolo::internal
