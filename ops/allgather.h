// Direct all-gather of equal contributions.
//
//   1. post a receive from every rank, straight into its place of the output
//   2. send this rank's contribution to every other rank; copy it to its own place unless in place
//
// Cost: 1 step; a rank sends and receives (n-1) x its contribution. No staging.
// No deadlock: all receives are posted before anything is sent, and wait for nothing.
#pragma once

#include <vector>

#include "ops/channel_operation.h"

namespace kolo::internal {

class Allgather final : public ChannelOperation {
 public:
  // output: [size * bytes]; input may be output + rank * bytes.
  void start(const Communicator& communicator, const void* input, void* output, std::size_t bytes);

 private:
  bool step() override;

  std::vector<Transfer> sends_;     // by peer
  std::vector<Transfer> receives_;  // by peer
  const std::byte* input_ = nullptr;
  std::byte* own_output_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t copied_bytes_ = 0;  // of this rank's own part
};

}  // namespace kolo::internal
