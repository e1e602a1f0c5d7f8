// OutputQueue: what kolorun writes to its stdout and stderr, in one order and in whole entries, so
// that lines of both stay whole even when they are the same file.
//
// Descriptors stay blocking, since others may share them; nothing here blocks but flush(). One
// thread, that of the io_context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <deque>
#include <functional>
#include <string>

namespace kolo::internal {

class OutputQueue {
 public:
  // `drained` is called when the queue has become short; `closed` once, when nobody reads `fd`.
  OutputQueue(boost::asio::io_context& io, std::function<void()> drained,
              std::function<void(int fd)> closed);

  void write(int fd, std::string bytes);  // fd is 1 or 2
  // Writes what is queued, waiting for the readers; gives up when they close.
  void flush();
  void discard() { queue_.clear(), queued_bytes_ = 0; }
  [[nodiscard]] std::size_t queued_bytes() const { return queued_bytes_; }

 private:
  struct Entry {
    int fd;
    std::string bytes;
    std::size_t written = 0;
  };
  bool write_front(int timeout_ms);
  void write_ready();
  void await_room(int fd);

  boost::asio::posix::stream_descriptor waiter_;
  std::function<void()> drained_;
  std::function<void(int)> closed_;
  std::deque<Entry> queue_;
  std::size_t queued_bytes_ = 0;
  bool waiting_ = false;
  bool is_closed_[3] = {};
};

}  // namespace kolo::internal
