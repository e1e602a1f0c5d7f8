#include "launcher/frame_link.h"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include "transport/rendezvous/agent_codec.h"

namespace kolo::internal {

namespace asio = boost::asio;
using boost::system::error_code;

FrameLink::FrameLink(asio::io_context& io, UniqueFd read_fd, UniqueFd write_fd,
                     std::string_view greeting, Events events)
    : in_(io, read_fd.release()),
      out_(io, write_fd.release()),
      reader_(greeting),
      events_(std::move(events)) {}

void FrameLink::finish(const Status& why) {
  if (std::exchange(ended_, true)) return;
  error_code ignored;
  in_.close(ignored);
  if (events_.end) events_.end(why);
}

void FrameLink::read_more() {
  if (reading_ || paused_ || ended_) return;
  reading_ = true;
  in_.async_read_some(asio::buffer(buffer_), [this](const error_code& error, std::size_t bytes) {
    reading_ = false;
    if (error) {
      const bool clean = error == asio::error::eof && reader_.rest().empty();
      finish(clean ? Status::ok() : peer_lost("the connection ended: " + error.message()));
      return;
    }
    reader_.feed(std::string_view(buffer_.data(), bytes));
    wipe(std::span(buffer_).first(bytes));
    hand_out();
  });
}

// All frames that have come, unless paused between two of them.
void FrameLink::hand_out() {
  while (!paused_ && !ended_) {
    auto frame = reader_.next();
    if (!frame) return finish(frame.status());
    if (!frame->has_value()) return read_more();
    events_.frame(**frame);
    wipe(**frame);
  }
}

void FrameLink::pause() { paused_ = true; }

void FrameLink::resume() {
  if (!std::exchange(paused_, false)) return;
  asio::post(in_.get_executor(), [this] {
    if (!reading_) hand_out();
  });
}

void FrameLink::send_raw(std::string bytes) {
  if (!out_.is_open()) return;
  queued_bytes_ += bytes.size();
  queue_.push_back(std::move(bytes));
  write_more();
}

void FrameLink::write_more() {
  if (writing_ || queue_.empty()) return;
  writing_ = true;
  asio::async_write(out_, asio::buffer(queue_.front()),
                    [this](const error_code& error, std::size_t) {
                      writing_ = false;
                      if (error) return close_write();  // reading tells of the end
                      queued_bytes_ -= queue_.front().size();
                      wipe(queue_.front());
                      queue_.pop_front();
                      write_more();
                      if (queued_bytes_ <= kShortQueueBytes && events_.drained) events_.drained();
                    });
}

void FrameLink::close_write() {
  error_code ignored;
  out_.close(ignored);
  // The front may still be under a write that close() has just aborted.
  while (queue_.size() > (writing_ ? 1u : 0u)) {
    queued_bytes_ -= queue_.back().size();
    queue_.pop_back();
  }
  if (events_.drained) asio::post(in_.get_executor(), events_.drained);
}

}  // namespace kolo::internal
