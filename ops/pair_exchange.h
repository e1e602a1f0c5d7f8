// All-gather and all-to-all between all pairs at once: contributions of any size, none included.
//
//   1. post a receive from every rank, straight into its place of the output
//   2. send this rank's block, or every rank its own, to every other rank; copy the own one to its
//      place unless it is there
//
// Cost: 1 step. All-gather: a rank sends n-1 times its own block, and receives all others'.
// All-to-all: it sends and receives every block but its own once. No staging.
// No deadlock: all receives are posted before anything is sent, and wait for nothing.
#pragma once

#include <span>
#include <vector>

#include "ops/channel_operation.h"

namespace kolo::internal {

class PairExchange final : public ChannelOperation {
 public:
  // An all-gather: bytes[r] of rank r. The input may be this rank's block of the output.
  void start(const Communicator& communicator, const void* input, void* output,
             std::span<const std::size_t> bytes);
  // An all-to-all: input and output do not overlap.
  void start(const Communicator& communicator, const void* input, void* output,
             std::span<const std::size_t> send_bytes, std::span<const std::size_t> receive_bytes);

 private:
  struct Block {
    std::byte* data = nullptr;  // of a send: only read
    std::size_t bytes = 0;
  };
  struct Peer {
    Block to, from;
    Transfer send{.done = true}, receive{.done = true};
  };

  bool step() override;
  void reset(const Communicator& communicator);
  void set_receives(void* output, std::span<const std::size_t> bytes);
  void post_all();

  std::vector<Peer> peers_;
  std::size_t copied_bytes_ = 0;  // of this rank's own block
};

}  // namespace kolo::internal
