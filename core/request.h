// A submission: what a caller asks for. A view of its arguments, valid during the call.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"
#include "ops/cuda/event_pool.h"

namespace kolo::internal {

// Called once with the operation's final status, on the background thread, no lock held.
using CompletionCallback = std::function<void(const Status&)>;

struct Submission {
  OpKind kind = OpKind::kAllreduce;
  std::int32_t process_set = 0;
  std::string_view name;  // empty: the next sequence number of the process set or the open group
  const void* input = nullptr;  // [count] elements; barrier: none
  void* output = nullptr;       // [count]; allgather: [count * size]; may equal input (in place)
  std::size_t count = 0;        // elements of this rank's input; of its output in a reduce-scatter
  // Elements by rank of the process set, [its size]; null: `count` for all. See kolo.h.
  const std::size_t* send_counts = nullptr;
  const std::size_t* receive_counts = nullptr;
  bool allocate = false;  // all-gather, all-to-all: the output is the library's
  // Where the buffers lie: the number of a CUDA device, or kHostMemory; and what the work that
  // makes the input is queued on, a cudaStream_t.
  std::int32_t device = -1;
  void* stream = nullptr;
  cuda::EventRef ready;  // behind that work, once it is known
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;         // allreduce
  int root = 0;                         // broadcast
  bool has_shape = false;               // else one dimension of `count`
  std::span<const std::int64_t> shape;  // empty with has_shape: a scalar; of a new set: its ranks
  double prescale = 1.0;
  double postscale = 1.0;
  Nanos timeout = kNever;  // from submission until it starts: over, it fails on all ranks
  CompletionCallback callback;
  // Where to say more of a result, before its completion; null: nowhere.
  std::int32_t* participants = nullptr;  // ranks whose data it holds
  std::int64_t* nonfinite = nullptr;     // NaNs and infinities in this rank's output
  std::int32_t* number = nullptr;        // a new set's id; of a join, the last rank
};

// Names a request of one context; 0 is none. Ids are not reused while a context lives.
using RequestId = std::uint64_t;

}  // namespace kolo::internal
