// TensorGroup: the tensors of one all-reduce seen as one line of elements.
//
// One piece lies in the caller's memory and is reduced there. Several are packed into the fusion
// buffer, reduced in place there, and unpacked; or they are packed and unpacked part by part, by
// who has a place for the parts (Fusion::kParts). Scales belong to pieces and are applied in the
// reduction itself, so bits do not depend on fusion.
//
// Two layouts of the line:
//   kWhole   piece after piece
//   kChunked chunk 0 of every piece, chunk 1 of every piece, ... : an element's chunk depends only
//            on its index in its own tensor, as the ring needs it
// Threads: one. Owns the fusion buffer and the scratch of the kernels; both only grow.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/types.h"
#include "ops/operation.h"
#include "ops/reduce_kernels.h"
#include "ops/reduction_order.h"
#include "ops/slices.h"

namespace kolo::internal {

// Grows, never shrinks; contents are not kept.
class Staging {
 public:
  std::byte* reserve(std::size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_ = allocate_aligned(bytes);
      bytes_ = bytes;
    }
    return memory_.get();
  }
  [[nodiscard]] std::byte* get() const { return memory_.get(); }

 private:
  AlignedBytes memory_;
  std::size_t bytes_ = 0;
};

class TensorGroup {
 public:
  enum class Layout { kWhole, kChunked };
  enum class Fusion { kBuffer, kParts };

  // `order` and the pieces' memory must outlive the run.
  void start(std::span<const Piece> pieces, const Reduction& reduction, const ReductionOrder& order,
             Layout layout, Fusion fusion = Fusion::kBuffer);

  [[nodiscard]] std::size_t elements() const { return elements_; }
  [[nodiscard]] std::size_t element_size() const { return element_bytes_; }
  [[nodiscard]] const ReduceKernel& kernel() const { return *kernel_; }
  [[nodiscard]] bool fused() const { return pieces_.size() > 1; }
  [[nodiscard]] Range chunk(int index) const {  // kChunked only
    return chunks_[static_cast<std::size_t>(index)];
  }
  // This rank's contribution and the place of the result; the same when in place or fused. Not for
  // a fused group without a buffer.
  [[nodiscard]] const std::byte* input(std::size_t element) const {
    return input_ + element * element_bytes_;
  }
  [[nodiscard]] std::byte* output(std::size_t element) const {
    return output_ + (element - output_begin_) * element_bytes_;
  }
  // The output of the only piece holds no more of the line than what begins with that element.
  void limit_output(std::size_t begin) { output_begin_ = begin; }
  [[nodiscard]] bool in_place() const { return input_ == output_; }
  // Whether a lone contribution may be sent as a partial without lift().
  [[nodiscard]] bool lift_is_copy() const;

  // Copy a bounded part; true when nothing is left to copy. Nothing to do unless fused.
  bool pack_some() { return copy_some(true); }
  bool unpack_some() { return copy_some(false); }

  // Copies a part of the line from the pieces' inputs, or to their outputs.
  void pack(Range range, std::byte* to) const;
  void unpack(Range range, const std::byte* from) const;

  // `range` in the canonical order: inputs[rank] holds that rank's contribution to it.
  void reduce(Range range, std::span<const std::byte* const> inputs, std::byte* output);
  // The same, straight into the callers' outputs: no unpacking afterwards.
  void reduce_to_pieces(Range range, std::span<const std::byte* const> inputs);

  // The two halves of reduce(), for hosts that reduce by themselves first. The order given to
  // start() is then that of one host's ranks; `hosts` that of the hosts, and it must outlive the
  // run; `ranks` is the number of those of all hosts.
  void compose(const ReductionOrder& hosts, int ranks);
  void reduce_partial(Range range, std::span<const std::byte* const> inputs, std::byte* partial);
  // inputs[host]: a partial, or a lone contribution where `partials[host]` is 0.
  void combine(Range range, std::span<const std::byte* const> inputs,
               std::span<const unsigned char> partials, std::byte* output);

  // Steps of the ring on this rank's own contribution to `range`.
  void lift(Range range, std::byte* partial);
  void fold(Range range, std::byte* partial);
  void fold_finish(Range range, const std::byte* partial);  // into output()

 private:
  // Elements of one piece that lie together in the line.
  struct Run {
    std::size_t begin = 0;
    std::size_t count = 0;
    std::size_t piece = 0;
    std::size_t piece_begin = 0;
  };

  void lay_out(Layout layout, std::size_t chunks);
  void add_run(std::size_t piece, Range of_piece);
  bool copy_some(bool pack);
  // Calls fn(run, part of `range` in it) for each run that `range` touches.
  template <typename Fn>
  void for_runs(Range range, const Fn& fn) const;
  [[nodiscard]] ReduceScale scale_of(const Run& run) const;
  [[nodiscard]] ReduceCall call_of(const ReductionOrder& order, const Run& run, Range part) const;
  void reduce_run(const Run& run, Range part, Range range, std::span<const std::byte* const> inputs,
                  std::byte* output);

  std::vector<Piece> pieces_;
  std::vector<Run> runs_;      // in the order of the line; no empty ones
  std::vector<Range> chunks_;  // of the line
  std::vector<const std::byte*> shifted_;
  const ReductionOrder* order_ = nullptr;
  Reduction reduction_;
  const ReductionOrder* hosts_ = nullptr;
  int divisor_ = 1;  // of kAvg
  const ReduceKernel* kernel_ = nullptr;
  std::size_t element_bytes_ = 0;
  std::size_t elements_ = 0;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::size_t output_begin_ = 0;  // the element that lies there
  std::size_t copied_runs_ = 0;
  std::size_t copied_elements_ = 0;  // of run copied_runs_
  bool packing_ = true;
  Staging fusion_buffer_;
  Staging scratch_;
};

}  // namespace kolo::internal
