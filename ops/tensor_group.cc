#include "ops/tensor_group.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ops/channel_operation.h"

namespace kolo::internal {

void TensorGroup::start(std::span<const Piece> pieces, const Reduction& reduction,
                        const ReductionOrder& order, Layout layout, Fusion fusion) {
  KOLO_CHECK(!pieces.empty());
  pieces_.assign(pieces.begin(), pieces.end());
  order_ = &order;
  hosts_ = nullptr;
  reduction_ = reduction;
  divisor_ = reduction.divisor(order.size());
  kernel_ = &reduce_kernel(reduction.dtype, reduction.op);
  element_bytes_ = element_bytes(reduction.dtype);
  shifted_.resize(static_cast<std::size_t>(order.size()));
  scratch_.reserve(reduce_scratch_bytes(order.stack_depth()));
  lay_out(layout, static_cast<std::size_t>(order.size()));
  if (fused() && fusion == Fusion::kParts) {
    input_ = nullptr;
    output_ = nullptr;
  } else if (fused()) {
    output_ = fusion_buffer_.reserve(elements_ * element_bytes_);
    input_ = output_;
  } else {
    input_ = static_cast<const std::byte*>(pieces_[0].input);
    output_ = static_cast<std::byte*>(pieces_[0].output);
  }
  output_begin_ = 0;
  copied_runs_ = 0;
  copied_elements_ = 0;
  packing_ = true;
}

void TensorGroup::add_run(std::size_t piece, Range of_piece) {
  if (of_piece.count == 0) return;
  runs_.push_back(
      {.begin = elements_, .count = of_piece.count, .piece = piece, .piece_begin = of_piece.begin});
  elements_ += of_piece.count;
}

void TensorGroup::lay_out(Layout layout, std::size_t chunks) {
  runs_.clear();
  chunks_.clear();
  elements_ = 0;
  if (layout == Layout::kWhole) {
    for (std::size_t p = 0; p < pieces_.size(); ++p) add_run(p, {0, pieces_[p].count});
    return;
  }
  for (std::size_t c = 0; c < chunks; ++c) {
    const std::size_t begin = elements_;
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      add_run(p, balanced_slice(pieces_[p].count, chunks, c));
    }
    chunks_.push_back({begin, elements_ - begin});
  }
}

bool TensorGroup::lift_is_copy() const {
  return kernel_->lift_is_copy &&
         std::all_of(pieces_.begin(), pieces_.end(),
                     [](const Piece& piece) { return piece.prescale == 1.0; });
}

bool TensorGroup::copy_some(bool pack) {
  if (!fused()) return true;
  if (packing_ != pack) {
    packing_ = pack;
    copied_runs_ = 0;
    copied_elements_ = 0;
  }
  std::size_t budget = kCopyStepBytes / element_bytes_;
  while (copied_runs_ < runs_.size() && budget > 0) {
    const Run& run = runs_[copied_runs_];
    const Piece& piece = pieces_[run.piece];
    const std::size_t count = std::min(budget, run.count - copied_elements_);
    std::byte* line = output_ + (run.begin + copied_elements_) * element_bytes_;
    const std::size_t offset = (run.piece_begin + copied_elements_) * element_bytes_;
    if (pack) {
      std::memcpy(line, static_cast<const std::byte*>(piece.input) + offset,
                  count * element_bytes_);
    } else {
      std::memcpy(static_cast<std::byte*>(piece.output) + offset, line, count * element_bytes_);
    }
    budget -= count;
    copied_elements_ += count;
    if (copied_elements_ == run.count) {
      ++copied_runs_;
      copied_elements_ = 0;
    }
  }
  return copied_runs_ == runs_.size();
}

template <typename Fn>
void TensorGroup::for_runs(Range range, const Fn& fn) const {
  if (range.count == 0) return;
  auto run = std::upper_bound(
      runs_.begin(), runs_.end(), range.begin,
      [](std::size_t element, const Run& candidate) { return element < candidate.begin; });
  --run;
  for (std::size_t at = range.begin; at < range.end(); ++run) {
    const std::size_t end = std::min(range.end(), run->begin + run->count);
    fn(*run, Range{at, end - at});
    at = end;
  }
}

void TensorGroup::pack(Range range, std::byte* to) const {
  for_runs(range, [&](const Run& run, Range part) {
    const std::size_t element = run.piece_begin + (part.begin - run.begin);
    std::memcpy(to + (part.begin - range.begin) * element_bytes_,
                static_cast<const std::byte*>(pieces_[run.piece].input) + element * element_bytes_,
                part.count * element_bytes_);
  });
}

void TensorGroup::unpack(Range range, const std::byte* from) const {
  for_runs(range, [&](const Run& run, Range part) {
    const std::size_t element = run.piece_begin + (part.begin - run.begin);
    std::memcpy(static_cast<std::byte*>(pieces_[run.piece].output) + element * element_bytes_,
                from + (part.begin - range.begin) * element_bytes_, part.count * element_bytes_);
  });
}

ReduceScale TensorGroup::scale_of(const Run& run) const {
  const Piece& piece = pieces_[run.piece];
  return {.prescale = piece.prescale, .postscale = piece.postscale, .contributors = divisor_};
}

ReduceCall TensorGroup::call_of(const ReductionOrder& order, const Run& run, Range part) const {
  return {.steps = order.steps().data(),
          .step_count = order.steps().size(),
          .stack_depth = order.stack_depth(),
          .inputs = shifted_.data(),
          .count = part.count,
          .scale = scale_of(run),
          .scratch = scratch_.get()};
}

void TensorGroup::reduce_run(const Run& run, Range part, Range range,
                             std::span<const std::byte* const> inputs, std::byte* output) {
  const std::size_t offset = (part.begin - range.begin) * element_bytes_;
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    shifted_[r] = inputs[r] != nullptr ? inputs[r] + offset : nullptr;
  }
  ReduceCall call = call_of(*order_, run, part);
  call.output = output;
  kernel_->reduce(call);
}

void TensorGroup::compose(const ReductionOrder& hosts, int ranks) {
  hosts_ = &hosts;
  divisor_ = reduction_.divisor(ranks);
  shifted_.resize(static_cast<std::size_t>(std::max(order_->size(), hosts.size())));
  scratch_.reserve(reduce_scratch_bytes(std::max(order_->stack_depth(), hosts.stack_depth())));
}

void TensorGroup::reduce_partial(Range range, std::span<const std::byte* const> inputs,
                                 std::byte* partial) {
  for_runs(range, [&](const Run& run, Range part) {
    const std::size_t first = part.begin - range.begin;
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      shifted_[r] = inputs[r] != nullptr ? inputs[r] + first * element_bytes_ : nullptr;
    }
    ReduceCall call = call_of(*order_, run, part);
    call.output = partial + first * kernel_->accumulator_bytes;
    kernel_->reduce_partial(call);
  });
}

void TensorGroup::combine(Range range, std::span<const std::byte* const> inputs,
                          std::span<const unsigned char> partials, std::byte* output) {
  for_runs(range, [&](const Run& run, Range part) {
    const std::size_t first = part.begin - range.begin;
    for (std::size_t h = 0; h < inputs.size(); ++h) {
      shifted_[h] =
          inputs[h] + first * (partials[h] != 0 ? kernel_->accumulator_bytes : element_bytes_);
    }
    ReduceCall call = call_of(*hosts_, run, part);
    call.partials = partials.data();
    call.output = output + first * element_bytes_;
    kernel_->combine(call);
  });
}

void TensorGroup::reduce(Range range, std::span<const std::byte* const> inputs, std::byte* output) {
  for_runs(range, [&](const Run& run, Range part) {
    reduce_run(run, part, range, inputs, output + (part.begin - range.begin) * element_bytes_);
  });
}

void TensorGroup::reduce_to_pieces(Range range, std::span<const std::byte* const> inputs) {
  for_runs(range, [&](const Run& run, Range part) {
    const std::size_t element = run.piece_begin + (part.begin - run.begin);
    reduce_run(run, part, range, inputs,
               static_cast<std::byte*>(pieces_[run.piece].output) + element * element_bytes_);
  });
}

void TensorGroup::lift(Range range, std::byte* partial) {
  for_runs(range, [&](const Run& run, Range part) {
    kernel_->lift(input(part.begin),
                  partial + (part.begin - range.begin) * kernel_->accumulator_bytes, part.count,
                  scale_of(run));
  });
}

void TensorGroup::fold(Range range, std::byte* partial) {
  for_runs(range, [&](const Run& run, Range part) {
    kernel_->fold(partial + (part.begin - range.begin) * kernel_->accumulator_bytes,
                  input(part.begin), part.count, scale_of(run));
  });
}

void TensorGroup::fold_finish(Range range, const std::byte* partial) {
  for_runs(range, [&](const Run& run, Range part) {
    kernel_->fold_finish(partial + (part.begin - range.begin) * kernel_->accumulator_bytes,
                         input(part.begin), output(part.begin), part.count, scale_of(run));
  });
}

}  // namespace kolo::internal
