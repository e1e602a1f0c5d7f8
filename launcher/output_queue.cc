#include "launcher/output_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

namespace kolo::internal {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {
// A pipe that poll() calls writable takes this much (PIPE_BUF) without blocking.
constexpr std::size_t kSafeBytes = 4096;
}  // namespace

OutputQueue::OutputQueue(asio::io_context& io, std::function<void()> drained,
                         std::function<void(int)> closed)
    : waiter_(io), drained_(std::move(drained)), closed_(std::move(closed)) {}

void OutputQueue::write(int fd, std::string bytes) {
  if (bytes.empty() || is_closed_[fd]) return;
  queued_bytes_ += bytes.size();
  queue_.push_back({fd, std::move(bytes)});
  if (!waiting_) write_ready();
}

// Writes from the front entry; false if there is no room within `timeout_ms` (-1: any time).
bool OutputQueue::write_front(int timeout_ms) {
  Entry& front = queue_.front();
  pollfd room{front.fd, POLLOUT, 0};
  const int ready = ::poll(&room, 1, timeout_ms);
  if (ready == 0 || (ready < 0 && errno == EINTR)) return false;
  const std::size_t left = front.bytes.size() - front.written;
  const ssize_t written =
      ::write(front.fd, front.bytes.data() + front.written, std::min(left, kSafeBytes));
  if (written < 0 && (errno == EINTR || errno == EAGAIN)) return false;
  std::size_t gone = left;
  if (written >= 0) {
    front.written += static_cast<std::size_t>(written);
    gone = static_cast<std::size_t>(written);
  } else if (!std::exchange(is_closed_[front.fd], true)) {
    const int fd = front.fd;
    queued_bytes_ -= gone;
    queue_.pop_front();
    if (closed_) closed_(fd);
    return true;
  }
  queued_bytes_ -= gone;
  if (written < 0 || front.written == front.bytes.size()) queue_.pop_front();
  return true;
}

void OutputQueue::write_ready() {
  while (!queue_.empty()) {
    if (!write_front(0)) return await_room(queue_.front().fd);
  }
}

void OutputQueue::await_room(int fd) {
  error_code error;
  waiter_.assign(::fcntl(fd, F_DUPFD_CLOEXEC, 3), error);
  if (error) return flush();  // cannot be waited for: a file, which is always ready
  waiting_ = true;
  waiter_.async_wait(asio::posix::stream_descriptor::wait_write, [this](const error_code&) {
    error_code ignored;
    waiter_.close(ignored);
    waiting_ = false;
    write_ready();
    if (queue_.empty()) drained_();
  });
}

void OutputQueue::flush() {
  while (!queue_.empty()) write_front(-1);
}

}  // namespace kolo::internal
