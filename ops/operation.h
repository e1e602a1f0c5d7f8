// Operation: one collective in progress, moved by whoever drives the context.
//
// Life: start(...) of the concrete class, then advance() until kDone or an error. An object may be
// started again once it is done or has failed; once warm it allocates nothing.
// Threads: one at a time. Nothing here blocks.
// Buffers: the caller's memory is read and written between start() and the advance() that says
// kDone or an error, and never after that.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "base/types.h"

namespace kolo::internal {

enum class Progress {
  kBlocked,  // nothing could move now: wait for a channel before calling again
  kMoved,    // something moved: call again
  kDone,     // complete: outputs are whole, inputs are no longer needed
};

class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  // Moves what can be moved now, at most about one segment's reduction (some 100 us).
  // An error is the channel's that broke; the communicator's scope has been dropped on all its
  // channels then, the outputs hold anything, and every later call returns the same error.
  virtual Result<Progress> advance() = 0;

  // Gives up: drops the communicator's scope on its channels, which go on serving others; the
  // caller's memory is free afterwards. Harmless when nothing is in progress.
  virtual void cancel() = 0;

  // After cancel() or an error: a device still uses the caller's memory, for a moment. Ask again.
  [[nodiscard]] virtual bool is_busy() const { return false; }
};

// How contributions are combined, element by element.
struct Reduction {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  // What kAvg divides by: ranks that have joined bring neutral elements and do not count. 0: the
  // number of ranks.
  int contributors = 0;

  [[nodiscard]] int divisor(int ranks) const { return contributors > 0 ? contributors : ranks; }
};

// One tensor of an all-reduce. Several of them, of one dtype and op, are a fused group.
struct Piece {
  const void* input = nullptr;  // [count]
  void* output = nullptr;       // [count]; equal to input (in place) or not overlapping it
  std::size_t count = 0;        // elements; may be 0
  double prescale = 1.0;        // floating types only; the same on every rank
  double postscale = 1.0;
};

// One tensor of a broadcast; several are a fused group.
struct BroadcastPiece {
  const void* input = nullptr;  // [bytes]; counts at the root only
  void* output = nullptr;       // [bytes]; at the root it may equal input, else no overlap
  std::size_t bytes = 0;
};

}  // namespace kolo::internal
