// ReductionOrder: the canonical order T in which contributions of ranks are combined.
//
// T of n things is the contiguous binary tree whose left part is the largest power of two below n.
// An all-reduce combines T over the ranks of each host, then T over the hosts (in the order of
// their first ranks). The result of a reduction depends on this order and the inputs only: never on
// timing, fusion, segment size, algorithm (the ring apart) or road.
//
// A plain immutable value after construction; may be read by many threads.
#pragma once

#include <span>
#include <vector>

namespace kolo::internal {

class ReductionOrder {
 public:
  // One postfix step over a stack of partial results.
  struct Step {
    enum class Kind : unsigned char {
      kLeaf,         // push x[a]
      kPair,         // push x[a] + x[b]
      kQuad,         // push (x[a] + x[b]) + (x[c] + x[d])
      kCombine,      // pop r, pop l, push l + r
      kCombineLeaf,  // pop l, push l + x[a]
    };
    Kind kind = Kind::kLeaf;
    int a = 0, b = 0, c = 0, d = 0;
  };

  // `host_index[r]` is the host of rank r; at least one rank.
  explicit ReductionOrder(std::span<const int> host_index);
  // All ranks on one host.
  static ReductionOrder single_host(int size);

  [[nodiscard]] int size() const { return size_; }  // ranks
  // Leaves and combines only.
  [[nodiscard]] std::span<const Step> plain_steps() const { return plain_; }
  // The same program with neighbouring steps fused, for the kernels.
  [[nodiscard]] std::span<const Step> steps() const { return fused_; }
  [[nodiscard]] int stack_depth() const { return stack_depth_; }  // of steps()

 private:
  void fuse();

  int size_ = 0;
  int stack_depth_ = 0;
  std::vector<Step> plain_;
  std::vector<Step> fused_;
};

}  // namespace kolo::internal
