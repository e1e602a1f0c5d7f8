// Broadcast: straight from the root when small, scatter and all-gather when large.
//
// Small (or two ranks):
//   1. the root sends everything to every other rank
//   Cost: 1 step; the root sends (n-1) x bytes.
// Large:
//   1. the bytes are cut in n-1 slices, one for each rank but the root; the root sends each its
//      slice, segment by segment
//   2. whoever holds a segment of its slice sends it to all others but the root
//   Cost: 2 steps, overlapped; every rank sends at most bytes, and receives bytes. No staging.
//
// No deadlock: receives go straight to the output, are posted W deep in the order in which the
// peer sends, and wait for nothing but earlier receives; only sends wait for receives.
#pragma once

#include <vector>

#include "ops/channel_operation.h"
#include "ops/slices.h"

namespace kolo::internal {

class Broadcast final : public ChannelOperation {
 public:
  // input counts at the root only (there it may equal output).
  void start(const Communicator& communicator, int root, const void* input, void* output,
             std::size_t bytes);

 private:
  struct Peer {
    std::size_t sent = 0;      // segments posted to it
    std::size_t expected = 0;  // segments posted from it
  };

  bool step() override;
  void post_all();
  void post_sends(int peer);
  void post_receives(int peer);
  [[nodiscard]] bool finished() const;
  // The slice that travels from `from` to `to`; empty if there is none.
  [[nodiscard]] Range slice(int from, int to) const;
  [[nodiscard]] std::size_t arrived();  // segments of this rank's own slice that are here

  TransferWindow sends_;
  TransferWindow receives_;
  std::vector<Peer> peers_;
  const std::byte* source_ = nullptr;  // what is sent from: root's input, others' output
  std::byte* output_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t segment_ = 0;       // bytes
  std::size_t copied_bytes_ = 0;  // root: input to output
  std::size_t arrived_ = 0;
  int root_ = 0;
  bool whole_ = true;  // small: everything goes to everybody
};

}  // namespace kolo::internal
