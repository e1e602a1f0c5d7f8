// FrameLink: frames over a pair of descriptors, from either side of the agent protocol.
//
// What has been through is wiped, as a frame may hold the job's secret.
//
// One thread, that of the io_context; it must outlive every handler, so it is destroyed only after
// the io_context has stopped for good. Callbacks come from the io_context, never from a call here.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"
#include "launcher/frame_reader.h"

namespace kolo::internal {

class FrameLink {
 public:
  struct Events {
    std::function<void(std::string_view frame)> frame;
    std::function<void(const Status& why)> end;  // once; OK: the other side closed between frames
    std::function<void()> drained;               // the send queue has become short
  };
  static constexpr std::size_t kShortQueueBytes = std::size_t{256} << 10;

  FrameLink(boost::asio::io_context& io, UniqueFd read_fd, UniqueFd write_fd,
            std::string_view greeting, Events events);

  void start() { read_more(); }
  void send(std::string_view body) { send_raw(make_frame(body)); }
  void send_raw(std::string bytes);  // e.g. the greeting
  void pause();                      // no frames until resume()
  void resume();
  void close_write();  // at once, what is queued is lost: the other side sees end-of-file

  [[nodiscard]] std::size_t queued_bytes() const { return queued_bytes_; }
  [[nodiscard]] bool greeted() const { return reader_.greeted(); }
  // What came before any greeting, for an error text.
  [[nodiscard]] std::string_view noise() const { return reader_.rest(); }

 private:
  void read_more();
  void hand_out();
  void write_more();
  void finish(const Status& why);

  boost::asio::posix::stream_descriptor in_;
  boost::asio::posix::stream_descriptor out_;
  FrameReader reader_;
  Events events_;
  std::array<char, std::size_t{64} << 10> buffer_{};
  std::deque<std::string> queue_;
  std::size_t queued_bytes_ = 0;
  bool paused_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool ended_ = false;
};

}  // namespace kolo::internal
