// ChannelOperation: what every collective over channels shares: driving the channels, noticing that
// something moved, ending on the first error, and the floating-point environment.
//
// A concrete collective says in step() what it does with the transfers that are done. It may move
// the reduction of one segment at most in one step.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/communicator.h"
#include "ops/operation.h"

namespace kolo::internal {

// Segments of one slice or chunk under way at once: enough to keep both directions of a road busy
// while one is being reduced.
inline constexpr std::size_t kSegmentsInFlight = 4;

// What one step copies from input to output.
inline constexpr std::size_t kCopyStepBytes = std::size_t{512} << 10;

// Bytes of a segment: small enough that a segment of every peer stays in the second-level cache and
// that staging (segments in flight x peers) is bounded by some 4 MiB; the same on every rank.
std::size_t segment_bytes(int size);

class ChannelOperation : public Operation {
 public:
  Result<Progress> advance() final;
  void cancel() final;
  // A start that could not get its memory: every advance() returns `status`.
  void fail(Status status);

 protected:
  // First thing in a start(): forgets the last run.
  void begin(const Communicator& communicator);

  // One turn of the collective's own work after the channels have moved. True if it did anything
  // that makes another turn worthwhile (posting is noticed without that). Calls complete() when all
  // is done.
  virtual bool step() = 0;
  void complete() { done_ = true; }
  // The operation has failed or been cancelled, and its scope of the channels with it.
  virtual void abandoned() {}

  [[nodiscard]] int rank() const { return communicator_.rank; }
  [[nodiscard]] int size() const { return communicator_.size; }
  [[nodiscard]] const Communicator& communicator() const { return communicator_; }

  // Posts with this operation's tag. An empty message is not sent: its transfer stays done.
  void post_send(int peer, Transfer& transfer, std::uint32_t phase, std::size_t segment,
                 const std::byte* data, std::size_t bytes);
  void post_receive(int peer, Transfer& transfer, std::uint32_t phase, std::size_t segment,
                    std::byte* data, std::size_t bytes);
  // The same for messages whose coming is all they say.
  void post_signal_send(int peer, Transfer& transfer, std::uint32_t phase, std::size_t segment);
  void post_signal_receive(int peer, Transfer& transfer, std::uint32_t phase, std::size_t segment);

 private:
  [[nodiscard]] std::uint64_t traffic() const;

  Communicator communicator_;
  Status failure_;
  bool posted_ = false;  // since the channels moved last: they may have work again
  bool done_ = true;
};

// Transfers of a window of segments for each peer; the slot of a segment is reused by the one that
// comes kSegmentsInFlight later.
class TransferWindow {
 public:
  void reset(int peers) {
    slots_.assign(static_cast<std::size_t>(peers) * kSegmentsInFlight, Transfer{.done = true});
  }
  Transfer& at(int peer, std::size_t segment) {
    return slots_[static_cast<std::size_t>(peer) * kSegmentsInFlight + segment % kSegmentsInFlight];
  }
  // Whether everything posted in the window is done.
  [[nodiscard]] bool all_done() const {
    for (const Transfer& slot : slots_) {
      if (!slot.done) return false;
    }
    return true;
  }

 private:
  std::vector<Transfer> slots_;
};

}  // namespace kolo::internal
