// One-shot all-reduce: everybody sends everything to everybody, and reduces it alone.
//
//   1. send each segment of this rank's contribution to every other rank
//   2. when a segment of every rank is here, reduce it in the canonical order into the output
//
// Cost: 1 step; a rank sends and receives (n-1) x bytes. For small totals. A job of one rank runs
// it too: step 2 applies scales and copies.
//
// No deadlock: a rank sends segment g only after it has reduced segment g - W (W in flight), and
// keeps receives posted for the W segments after its last reduced one. Take the rank with the
// fewest reduced segments, r: every peer may send it segment r, all that lies before in those
// streams has been received here, and every peer has a receive for this rank's segment r. So r goes
// on. Messages of a later operation may wait in a stream, but only behind all of this one's.
#pragma once

#include <span>
#include <vector>

#include "ops/channel_operation.h"
#include "ops/tensor_group.h"

namespace kolo::internal {

class AllreduceOneshot final : public ChannelOperation {
 public:
  void start(const Communicator& communicator, std::span<const Piece> pieces,
             const Reduction& reduction);

 private:
  bool step() override;
  void post_window();
  bool reduce_next();
  [[nodiscard]] Range segment(std::size_t index) const;
  [[nodiscard]] std::byte* staged(int peer, std::size_t segment) const;

  TensorGroup group_;
  TransferWindow sends_;
  TransferWindow receives_;
  Staging staging_;
  std::byte* stage_ = nullptr;
  std::size_t slot_bytes_ = 0;
  std::vector<const std::byte*> inputs_;
  std::size_t segment_elements_ = 0;
  std::size_t segments_ = 0;
  std::size_t posted_ = 0;  // segments whose receives and sends are posted
  std::size_t reduced_ = 0;
  bool packed_ = false;
};

}  // namespace kolo::internal
