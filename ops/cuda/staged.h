// StagedOperation: a collective of tensors in device memory over the roads of the CPUs, through
// pinned memory. A rank whose tensors are in host memory takes part with them where they are, so
// ranks may mix both.
//
//   1. all-reduce: in chunks of some MiB, in two buffers: while one is reduced, the next comes from
//      the device, and the one before goes back to it. The order of additions does not depend on
//      chunks, but for the ring's, which therefore is given all at once
//   2. everything else: all of it to the host, the collective, all of it back
//   3. what is not finite in a result, if it is asked for, is counted in the pinned memory, while
//      that is copied back
//
// The chunks follow from counts alone, which all ranks share. The bits are those of host tensors.
//
// Threads: one at a time; the copies are the launch thread's. Memory: pinned, two chunks, or input
// and output; kept for the next operation.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/types.h"
#include "ops/adasum.h"
#include "ops/composed.h"
#include "ops/cuda/copy_task.h"

namespace kolo::internal::cuda {

struct StagedTensor {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t input_count = 0;  // elements of this rank's buffers
  std::size_t output_count = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  EventRef ready;
  // Where to put how many values of the output are not finite, of that type, which need not be the
  // call's; null: nowhere. With host memory null.
  std::int64_t* nonfinite = nullptr;
  DataType dtype = DataType::kFloat32;
};

struct StagedCall {
  OpKind kind = OpKind::kAllreduce;
  Reduction reduction;             // its dtype is that of what moves, too
  int device = -1;                 // this rank's; -1: its tensors are in host memory
  LaunchThread* thread = nullptr;  // that copies; null with host memory
  int root = 0;                    // by place
  bool whole = false;              // an all-reduce in one piece
  std::vector<StagedTensor> tensors;
  // On the launch thread, with the device current: sets the only tensor's output. May be empty.
  std::function<Status(StagedTensor&)> make_output;
  std::vector<std::size_t> send_counts;  // [size] elements, as Collectives takes them
  std::vector<std::size_t> receive_counts;
};

class StagedOperation final : public ComposedOperation {
 public:
  StagedOperation();

  // To be filled in before start().
  StagedCall& call() { return call_; }
  void start(Collectives& collectives, std::uint32_t sequence);
  [[nodiscard]] bool is_busy() const override;
  // After cancel(): gives up copies that are not launched. True: one is left behind.
  bool take_back(const Status& why, Nanos patience);
  // On the launch thread, at the end.
  void release(const Runtime& runtime);

 private:
  struct Part {  // of a tensor in a chunk
    std::size_t tensor = 0;
    std::size_t first = 0;  // elements
    std::size_t input_count = 0;
    std::size_t output_count = 0;
    std::size_t input_offset = 0;  // in the staging, bytes
    std::size_t output_offset = 0;
  };
  struct Buffer {
    Staging staging;
    CopyTask in{CopyTask::Way::kToHost};
    CopyTask out{CopyTask::Way::kToDevice};
    std::vector<Part> parts;
    std::size_t bytes = 0;
  };

  void step() override;
  [[nodiscard]] bool is_on_host() const { return call_.device < 0; }
  [[nodiscard]] bool is_chunked() const;
  bool cut(Buffer& buffer);
  void cut_chunk(Buffer& buffer);
  void cut_all(Buffer& buffer);
  void bring(Buffer& buffer);
  void take_back(Buffer& buffer);
  bool counts();
  bool has_failed();
  void reduce(Buffer& buffer);
  Operation& begin_collective(Buffer& buffer);
  Operation& begin_allreduce(Buffer& buffer);
  Operation& begin_broadcast(Buffer& buffer);
  const void* input_of(const Buffer& buffer, const Part& part) const;
  void* output_of(const Buffer& buffer, const Part& part) const;
  std::span<const std::size_t> in_bytes(const std::vector<std::size_t>& counts,
                                        std::vector<std::size_t>& scratch) const;

  StagedCall call_;
  std::array<std::unique_ptr<Buffer>, 2> buffers_;
  // Where the cutting is: the next element of a tensor.
  std::size_t next_tensor_ = 0;
  std::size_t next_element_ = 0;
  bool all_cut_ = false;
  std::uint64_t brought_ = 0;  // chunks, as the next two
  std::uint64_t reduced_ = 0;
  bool reducing_ = false;
  // What is being counted: of a buffer; null: nothing.
  const Buffer* counting_ = nullptr;
  std::size_t counting_part_ = 0;
  std::size_t counted_ = 0;  // elements of the part's tensor
  Adasum adasum_;
  std::vector<Piece> pieces_;  // scratch, as all below
  std::vector<BroadcastPiece> broadcasts_;
  std::vector<std::size_t> sizes_;
  std::vector<std::size_t> receive_sizes_;
};

}  // namespace kolo::internal::cuda
