#include "ops/channel_operation.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "ops/mxcsr_guard.h"

namespace kolo::internal {

std::size_t segment_bytes(int size) {
  const auto peers = static_cast<std::size_t>(std::max(size - 1, 1));
  return std::clamp(std::bit_floor((std::size_t{1} << 19) / peers), std::size_t{16} << 10,
                    std::size_t{256} << 10);
}

void ChannelOperation::begin(const Communicator& communicator) {
  KOLO_CHECK(done_ || !failure_.is_ok());
  KOLO_CHECK(communicator.rank >= 0 && communicator.rank < communicator.size);
  KOLO_CHECK(communicator.order == nullptr || communicator.order->size() == communicator.size);
  KOLO_CHECK(communicator.size == 1 ||
             communicator.channels.size() == static_cast<std::size_t>(communicator.size));
  communicator_ = communicator;
  failure_ = Status::ok();
  done_ = false;
}

std::uint64_t ChannelOperation::traffic() const {
  std::uint64_t total = 0;
  for (const Channel* channel : communicator_.channels) {
    if (channel == nullptr) continue;
    const ChannelCounters& c = channel->counters();
    total += c.bytes_sent + c.bytes_received + c.messages_sent + c.messages_received;
  }
  return total;
}

Result<Progress> ChannelOperation::advance() {
  if (!failure_.is_ok()) return failure_;
  if (done_) return Progress::kDone;
  const MxcsrGuard guard;
  const std::uint64_t before = traffic();
  posted_ = false;
  Status broken;
  for (Channel* channel : communicator_.channels) {
    if (channel == nullptr) continue;
    if (Status status = channel->advance(); !status && broken.is_ok()) broken = std::move(status);
  }
  // A peer that went right after its last word has done its part.
  const bool worked = step();
  if (done_) return Progress::kDone;
  if (!broken.is_ok()) {
    fail(std::move(broken));
    return failure_;
  }
  return worked || posted_ || traffic() != before ? Progress::kMoved : Progress::kBlocked;
}

void ChannelOperation::fail(Status status) {
  for (Channel* channel : communicator_.channels) {
    if (channel != nullptr) channel->drop(communicator_.scope);
  }
  abandoned();
  failure_ = std::move(status);
}

void ChannelOperation::cancel() {
  if (!done_ && failure_.is_ok()) fail(aborted("the operation was cancelled"));
}

void ChannelOperation::post_send(int peer, Transfer& transfer, std::uint32_t phase,
                                 std::size_t segment, const std::byte* data, std::size_t bytes) {
  KOLO_CHECK(transfer.done);
  if (bytes == 0) return;
  transfer = {.data = const_cast<std::byte*>(data), .bytes = bytes};  // a send only reads it
  post_signal_send(peer, transfer, phase, segment);
}

void ChannelOperation::post_receive(int peer, Transfer& transfer, std::uint32_t phase,
                                    std::size_t segment, std::byte* data, std::size_t bytes) {
  KOLO_CHECK(transfer.done);
  if (bytes == 0) return;
  transfer = {.data = data, .bytes = bytes};
  post_signal_receive(peer, transfer, phase, segment);
}

void ChannelOperation::post_signal_send(int peer, Transfer& transfer, std::uint32_t phase,
                                        std::size_t segment) {
  transfer.tag = message_tag(communicator_.sequence, phase, segment);
  transfer.scope = communicator_.scope;
  posted_ = true;
  communicator_.channels[static_cast<std::size_t>(peer)]->post_send(transfer);
}

void ChannelOperation::post_signal_receive(int peer, Transfer& transfer, std::uint32_t phase,
                                           std::size_t segment) {
  transfer.tag = message_tag(communicator_.sequence, phase, segment);
  transfer.scope = communicator_.scope;
  posted_ = true;
  communicator_.channels[static_cast<std::size_t>(peer)]->post_receive(transfer);
}

}  // namespace kolo::internal
