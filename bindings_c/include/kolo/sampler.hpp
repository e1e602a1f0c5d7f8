// kolo::ShardSampler; part of training.hpp. C++17 or later.
#ifndef KOLO_SAMPLER_HPP_
#define KOLO_SAMPLER_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kolo/context.hpp"
#include "kolo/error.hpp"
#include "kolo/kolo.h"
#include "kolo/types.hpp"

namespace kolo {

// What becomes of the last examples when they do not go evenly into the ranks.
enum class Tail {
  keep,  // all are used once; the first ranks have one more than the others, so end with join()
  drop,  // fewer examples than there are ranks are left out, others in every epoch
  pad    // fewer examples than there are ranks are used twice: the first of the epoch once more
};

// Deals the numbers 0 to examples - 1 to the ranks, in an order that is new in every epoch and the
// same on all ranks, because it follows from seed and epoch alone: no communication, and the same
// everywhere and for ever (splitmix64, Fisher-Yates). The shards of an epoch are disjoint, and
// complete but for the tail. The ranks take turns, so that the first k examples of all shards are
// the first k * size of the order, whatever the size.
// It never changes: make another one when the set of ranks does. Any thread.
class ShardSampler {
 public:
  // For the rank at `place` of `size`. Throws KOLO_INVALID_ARGUMENT unless 0 <= place < size.
  ShardSampler(std::size_t examples, int place, int size, std::uint64_t seed, Tail tail)
      : examples_(examples), seed_(seed), tail_(tail) {
    if (place < 0 || place >= size) {
      throw detail::refusal("ShardSampler: place " + std::to_string(place) + " of " +
                            std::to_string(size) +
                            " ranks; give this rank's place in the process set");
    }
    place_ = static_cast<std::size_t>(place);
    size_ = static_cast<std::size_t>(size);
  }
  // For this rank of the set; throws if it is not in it.
  ShardSampler(const Context& context, std::size_t examples, std::uint64_t seed, Tail tail,
               ProcessSet set = {})
      : ShardSampler(examples, context.place(set), static_cast<int>(context.ranks(set).size()),
                     seed, tail) {}

  // This rank's examples in the epoch, in the order of their use: [shard_size(consumed)].
  // When an epoch is gone on with by other ranks than began it, `consumed` is how many examples all
  // ranks together have used up: a multiple of the old size; the rest is dealt anew.
  // Takes O(examples), and as much memory meanwhile.
  std::vector<std::size_t> shard(std::uint64_t epoch, std::size_t consumed = 0) const {
    const std::vector<std::size_t> all = order(epoch);
    const std::size_t first = std::min(consumed, examples_);
    const std::size_t left = examples_ - first;
    std::vector<std::size_t> mine(shard_size(consumed));
    for (std::size_t i = 0; i < mine.size(); ++i) {
      mine[i] = all[first + (place_ + i * size_) % left];  // beyond the end: padding
    }
    return mine;
  }
  std::size_t shard_size(std::size_t consumed = 0) const noexcept {
    const std::size_t left = examples_ - std::min(consumed, examples_);
    const std::size_t rest = left % size_;
    const bool one_more = tail_ == Tail::pad ? rest > 0 : tail_ == Tail::keep && place_ < rest;
    return left / size_ + (one_more ? 1 : 0);
  }
  // All examples in the epoch's order: [examples].
  std::vector<std::size_t> order(std::uint64_t epoch) const {
    std::vector<std::size_t> all(examples_);
    std::iota(all.begin(), all.end(), std::size_t{0});
    std::uint64_t state = mixed(mixed(seed_) + epoch);
    for (std::size_t i = examples_; i > 1; --i) {
      state += kStep;
      std::swap(all[i - 1], all[static_cast<std::size_t>(mixed(state) % i)]);
    }
    return all;
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;

  // splitmix64's output for a state.
  static std::uint64_t mixed(std::uint64_t state) noexcept {
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
    return state ^ (state >> 31);
  }

  std::size_t examples_;
  std::size_t place_ = 0;
  std::size_t size_ = 1;
  std::uint64_t seed_;
  Tail tail_;
};

}  // namespace kolo

#endif  // KOLO_SAMPLER_HPP_
