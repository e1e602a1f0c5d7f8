// Adasum: adaptive summation of gradients (arXiv 2006.02924), over any road. Two vectors become
//   a(x, y) = (1 - x.y / 2 x.x) x + (1 - x.y / 2 y.y) y
// so that equal ones are averaged and orthogonal ones added; a zero vector leaves the other one as
// it is. All ranks are combined so over the tree T (ops/reduction_order.h), as if on one host.
//
//   1. all-to-all: rank r gets slice r of every rank's vector, and applies the prescale
//   2. for each level of the tree: the products x.x, x.y and y.y of all pairs of the level over the
//      own slice; an all-gather of them; their sums in rank order; then the pairs become one vector
//   3. postscale, rounding, and an all-gather of the slices
//
// Numbers: f16, bf16 and f32 are held in f32 between levels, f64 in f64; products are summed in f64
// in an order that only size and count decide; one rounding to f16 or bf16 at the end. So the bits
// are the same on all ranks, over every road, and from run to run. A NaN anywhere makes all NaN.
//
// Cost: 2 + ceil(log2 n) collectives; a rank sends and receives 2 (n-1)/n x bytes, and 24 (n-1)
// bytes for every pair. Staging: the slices of all ranks, so as much as the vector, in the type in
// which they are held; and for f16 and bf16 that much again as it came.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "ops/composed.h"
#include "ops/slices.h"
#include "ops/tensor_group.h"

namespace kolo::internal {

// One combination of two vectors: the left one's place takes the result.
struct AdasumPair {
  std::size_t left = 0, right = 0;
  int level = 0;  // from 1; pairs of one level do not depend on one another
};
// Those of n ranks, level by level.
[[nodiscard]] std::vector<AdasumPair> adasum_pairs(std::size_t ranks);

class Adasum final : public ComposedOperation {
 public:
  // f16, bf16, f32 or f64. In place or not.
  void start(Collectives& collectives, std::uint32_t sequence, const Piece& piece, DataType dtype);

 private:
  enum class Stage { kExchange, kLift, kMultiply, kCombine, kRound, kGather };
  // Sums of products, in lanes so that they can be computed side by side.
  struct Products {
    static constexpr std::size_t kLanes = 8;
    std::array<double, kLanes> xx{}, xy{}, yy{};
  };
  struct Coefficients {
    double left = 1, right = 1;
  };

  void step() override;
  void reserve();
  void exchange();
  void gather_products();
  void gather_result();
  void next_level();
  // Bounded parts; true when all of the stage is done.
  bool lift_some();
  bool multiply_some();
  bool combine_some();
  bool round_some();
  [[nodiscard]] Coefficients coefficients(std::size_t pair) const;
  [[nodiscard]] Range next_part(std::size_t elements) const;
  [[nodiscard]] std::byte* row(std::size_t rank) const {
    return work_.get() + rank * slice_.count * work_bytes_;
  }
  [[nodiscard]] std::size_t ranks() const { return sizes_.size(); }

  Piece piece_;
  DataType dtype_ = DataType::kFloat32;
  std::size_t element_bytes_ = 0;
  std::size_t work_bytes_ = 0;  // of an element between levels
  Range slice_;                 // the own one
  Stage stage_ = Stage::kExchange;
  std::size_t position_ = 0;  // elements done of a row, or of all
  std::vector<AdasumPair> pairs_;
  std::size_t level_begin_ = 0, level_end_ = 0;  // pairs of the level
  std::size_t pair_ = 0;
  Products products_;               // of pair_
  std::vector<double> own_, all_;   // products of the level; of all ranks
  std::vector<std::size_t> sizes_;  // bytes by rank
  std::vector<std::size_t> equal_;  // bytes by rank, all the same
  Staging work_;                    // [ranks][slice]
  Staging received_;                // the same, as it came
};

}  // namespace kolo::internal
