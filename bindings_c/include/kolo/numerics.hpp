// kolo::sync_batch_norm, clip_by_global_norm and LossScaler; part of training.hpp. C++20.
#ifndef KOLO_NUMERICS_HPP_
#define KOLO_NUMERICS_HPP_

#include "kolo/types.hpp"

#if defined(__cpp_lib_span)
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "kolo/context.hpp"
#include "kolo/error.hpp"
#include "kolo/kolo.h"
#include "kolo/options.hpp"

namespace kolo {

// The mean and the variance of every channel over the batches of all ranks, by one all-reduce of
// 2 * channels + 1 doubles. Give what this rank's batch adds: sums[c] of the values of channel c,
// squares[c] of their squares, and their number in each channel (0 is allowed). Afterwards sums[c]
// is the mean and squares[c] the (biased) variance, both the same on every rank, and the number
// over all ranks is returned; if that is 0, so are they. sums, squares: [channels] of double, or of
// float where a mean may not be large beside its deviation. All ranks of options.set() call it,
// with the same name. Blocks. Works while some ranks have joined. Throws KOLO_INVALID_ARGUMENT if
// the sizes differ (before any communication), and the operation's error.
template <detail::Output Sums, detail::Output Squares>
double sync_batch_norm(Context& context, Sums&& sums, Squares&& squares, double count,
                       const Options& options = {}) {
  const std::span sum(sums);
  const std::span square(squares);
  using T = detail::ElementOf<Sums>;
  using U = detail::ElementOf<Squares>;
  static_assert(std::is_floating_point_v<T> && std::is_floating_point_v<U>);
  const std::size_t channels = sum.size();
  if (square.size() != channels) {
    throw detail::refusal("sync_batch_norm: " + std::to_string(channels) + " sums but " +
                          std::to_string(square.size()) +
                          " sums of squares; give one of each a channel");
  }
  std::vector<double> all(2 * channels + 1);
  std::copy(sum.begin(), sum.end(), all.begin());
  std::copy(square.begin(), square.end(), all.begin() + static_cast<std::ptrdiff_t>(channels));
  all.back() = count;
  context.allreduce(all, Op::sum, options);
  const double total = all.back();
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = total == 0.0 ? 0.0 : all[c] / total;
    const double variance = total == 0.0 ? 0.0 : all[channels + c] / total - mean * mean;
    sum[c] = static_cast<T>(mean);
    square[c] = static_cast<U>(std::fmax(variance, 0.0));  // rounding may leave it just below 0
  }
  return total;
}

namespace detail {

template <typename Tensors>
double squared_norm(const Tensors& tensors) {
  double sum = 0.0;
  for (const auto& tensor : tensors) {
    for (const auto element : tensor) {
      sum += static_cast<double>(element) * static_cast<double>(element);
    }
  }
  return sum;
}

// Scales so that the norm, which is `norm` now, is at most `max_norm`. One that is not finite
// cannot be clipped: the elements stay, for the caller to see.
template <typename Tensors>
double clip(Tensors&& tensors, double norm, double max_norm) {
  if (!(max_norm > 0.0)) {
    throw detail::refusal("clip_by_global_norm: max_norm is " + std::to_string(max_norm) +
                          "; give more than 0");
  }
  if (!std::isfinite(norm) || norm <= max_norm) return norm;
  const double factor = max_norm / norm;
  for (auto&& tensor : tensors) {
    for (auto& element : tensor) {
      element = static_cast<std::remove_reference_t<decltype(element)>>(
          static_cast<double>(element) * factor);
    }
  }
  return norm;
}

}  // namespace detail

// Scales all tensors by one factor, so that the norm of all their elements together (the root of
// the sum of squares, in double) is at most max_norm. Returns the norm as it was; one that is not
// finite leaves the tensors alone. tensors: a range of ranges of float or double. Reduced gradients
// are the same on all ranks, bit for bit, and so are norm and result: nothing is communicated.
// Throws KOLO_INVALID_ARGUMENT unless max_norm > 0.
template <typename Tensors>
double clip_by_global_norm(Tensors&& tensors, double max_norm) {
  return detail::clip(tensors, std::sqrt(detail::squared_norm(tensors)), max_norm);
}

// The same where each rank of options.set() holds another part of the gradients: the squared norms
// are added up over the ranks. All of them call it. Blocks. Throws the operation's error as well.
template <typename Tensors>
double clip_by_global_norm(Context& context, Tensors&& tensors, double max_norm,
                           const Options& options = {}) {
  double squared = detail::squared_norm(tensors);
  context.allreduce(&squared, &squared, 1, Op::sum, options);
  return detail::clip(tensors, std::sqrt(squared), max_norm);
}

struct LossScalerSettings {
  double scale = 65536.0;   // to begin with
  int growth_steps = 2000;  // the scale is doubled after so many good steps in a row
  double min_scale = 1.0;
  double max_scale = 4294967296.0;
};

// The factor by which a loss is multiplied so that its f16 gradients do not vanish: halved when
// they overflow, doubled after a while without. Multiply the loss by scale(), and per step:
//     if (scaler.update(reducer.nonfinite())) { gradients times the scale's inverse; step }
// Reduced gradients are the same on all ranks, and so is the count of their non-finite elements:
// all ranks take or skip the step together, without another word. Pure; one thread.
class LossScaler {
 public:
  explicit LossScaler(const LossScalerSettings& settings = {})
      : settings_(settings), state_{settings.scale, 0.0} {
    if (!(settings.min_scale > 0.0 && settings.min_scale <= settings.scale &&
          settings.scale <= settings.max_scale && settings.growth_steps > 0)) {
      throw detail::refusal(
          "LossScaler: give 0 < min_scale <= scale <= max_scale and growth_steps above 0");
    }
  }

  double scale() const noexcept { return state_[0]; }
  // The step's gradients, made with scale(), held that many NaNs and infinities. Returns whether to
  // step the weights by them (times 1 / the scale that they were made with: ask before this call).
  bool update(std::int64_t nonfinite) {
    if (nonfinite > 0) {
      state_ = {std::fmax(scale() / 2.0, settings_.min_scale), 0.0};
      return false;
    }
    if (++state_[1] >= settings_.growth_steps) {
      state_ = {std::fmin(scale() * 2.0, settings_.max_scale), 0.0};
    }
    return true;
  }
  // Scale and good steps in a row: to be saved with the weights, and to be broadcast with them
  // after a join(), whose ranks have not seen the same steps.
  std::span<double, 2> state() noexcept { return state_; }

 private:
  LossScalerSettings settings_;
  std::array<double, 2> state_;
};

}  // namespace kolo
#endif  // defined(__cpp_lib_span)

#endif  // KOLO_NUMERICS_HPP_
