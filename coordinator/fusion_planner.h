// The fusion planner: cuts the tensors that are ready together into fused operations.
//
// Pure, and run by the sequencer only: it sends the cuts, and nobody cuts for himself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coordinator/frame.h"

namespace kolo::internal {

struct FusionOptions {
  std::uint64_t threshold_bytes = std::uint64_t{64} << 20;  // of one fused operation; 0: no fusion
  std::uint64_t tensor_bytes = std::uint64_t{256} << 10;    // larger tensors travel alone
};

struct FusionItem {
  std::uint64_t bytes = 0;
  bool fusible = false;  // else it stands alone
  std::uint32_t process_set = 0;
  OpKind kind = OpKind::kAllreduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::int32_t root = 0;
  const std::vector<int>* absent = nullptr;            // joined ranks; null: none
  const std::vector<std::int32_t>* devices = nullptr;  // of the spec; null: none
};

// Refers to `spec`.
[[nodiscard]] FusionItem fusion_item(std::uint32_t process_set, const TensorSpec& spec);

class FusionPlanner {
 public:
  explicit FusionPlanner(const FusionOptions& options) : options_(options) {}

  // The number of each item's cut; cuts are numbered in the order of their first members.
  // All-reduces fuse when process set, dtype, op and absent ranks are equal, but for Adasum;
  // broadcasts when process set, root and absent ranks are, whatever their dtypes; both only with
  // their like on the same devices. Also past items in between that do not fit. Larger tensors and
  // everything else stand alone. Valid until the next call; allocates nothing once warm.
  std::span<const std::uint32_t> assign(std::span<const FusionItem> items);
  [[nodiscard]] std::uint32_t cuts() const { return cuts_; }  // of the last assign()

 private:
  struct Bin {  // a cut that may still take members
    const FusionItem* like = nullptr;
    std::uint32_t cut = 0;
    std::uint64_t bytes = 0;
  };

  FusionOptions options_;
  std::vector<std::uint32_t> cut_of_;
  std::vector<Bin> open_;
  std::uint32_t cuts_ = 0;
};

// Places (counted over the tensors of `units` in order) by fused operation, in the order of their
// first members. Units with payloads stand alone: they move nothing. Empty when nothing fuses: then
// every tensor stands alone, in order.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> plan_fusion(
    const std::vector<UnitOrder>& units, const FusionOptions& options);

}  // namespace kolo::internal
