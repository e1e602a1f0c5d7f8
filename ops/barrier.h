// Barrier by dissemination.
//
//   In round k a rank sends an empty message to rank + 2^k and waits for one from rank - 2^k;
//   after ceil(log2 n) rounds it has heard, directly or not, of everybody.
//
// Cost: ceil(log2 n) steps of one message without payload.
// No deadlock: all receives are posted at the start.
#pragma once

#include <vector>

#include "ops/channel_operation.h"

namespace kolo::internal {

class Barrier final : public ChannelOperation {
 public:
  void start(const Communicator& communicator);

 private:
  bool step() override;
  void send_round();

  std::vector<Transfer> sends_;     // by round
  std::vector<Transfer> receives_;  // by round
  std::size_t rounds_ = 0;
  std::size_t round_ = 0;  // the one whose send has been posted
};

}  // namespace kolo::internal
