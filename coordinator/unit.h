// What ranks agree on: tensors, and units (one tensor, or a group that succeeds or fails as one).
// Plain values; no memory addresses here.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/types.h"

namespace kolo::internal {

inline constexpr std::uint64_t kTensorBytesMax = PTRDIFF_MAX;  // as every rank checks it

inline constexpr std::int32_t kHostMemory = -1;  // as the number of a device

// Operations of the world that change which process sets there are.
[[nodiscard]] constexpr bool is_set_change(OpKind kind) {
  return kind == OpKind::kCreateSet || kind == OpKind::kDestroySet;
}

struct TensorSpec {
  std::string name;  // inside a group; the unit's own name for a single tensor
  OpKind kind = OpKind::kAllreduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::int32_t root = 0;
  std::uint64_t count = 0;  // elements of one rank's input; of its output in a reduce-scatter
  // Empty: a scalar. Of a new process set: its ranks; of one that ends: its id.
  std::vector<std::int64_t> shape;
  // Elements by rank of the process set, and `count` is their sum; empty: `count` for each.
  // All-gather and reduce-scatter: the same on all ranks, as is `shape` (nothing of a rank's own is
  // in it). All-to-all: what this rank sends to each.
  std::vector<std::uint64_t> counts;
  std::vector<std::uint64_t> receive_counts;  // all-to-all with counts: expected; empty: what comes
  bool open = false;  // all-gather: each rank gives `count` of its own, and takes what comes
  double prescale = 1.0;
  double postscale = 1.0;
  // Where the buffers of the rank that submits lie: the number of its CUDA device, or kHostMemory.
  std::int32_t device = kHostMemory;
  // Of a unit as the ranks have agreed on it, see placement.h: the same by rank of the process set;
  // empty: all in host memory.
  std::vector<std::int32_t> devices;

  bool operator==(const TensorSpec&) const = default;
  // Numbers differ between ranks: the order brings them all, and the unit is never cached.
  [[nodiscard]] bool is_personal() const {
    return open || (kind == OpKind::kAlltoall && !counts.empty());
  }
};

// The numbers of all ranks that an order brings, for each personal tensor of its unit: of an
// all-gather [size of the set], of an all-to-all [size * size] with a row for each sender.
using OrderCounts = std::vector<std::vector<std::uint64_t>>;

struct UnitKey {
  std::uint32_t process_set = 0;
  std::string name;
  auto operator<=>(const UnitKey&) const = default;
};

struct Unit {
  UnitKey key;
  bool group = false;
  bool numbered = false;            // named by a sequence number: never seen twice, never cached
  std::vector<TensorSpec> tensors;  // a group's are sorted by name
  std::string invalid;  // why the submitting rank refused it; it then only tells the others

  bool operator==(const Unit&) const = default;
  // It may be known by a number from its second use on.
  [[nodiscard]] bool is_cacheable() const;
};
using UnitPtr = std::shared_ptr<const Unit>;  // shared by cache, table and plans; immutable

// The process set that the unit ends; 0: none.
[[nodiscard]] std::uint32_t ended_set(const Unit& unit);
// "(100,2560)"; "()" for a scalar.
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);
// "'g'", "number 17"; of a new process set or one that ends, what comes after "#pset:" or the like.
[[nodiscard]] std::string name_text(const Unit& unit);
// "allreduce 'g'", "group 'G'", "allreduce number 17".
[[nodiscard]] std::string unit_text(const Unit& unit);
// "rank 0", "ranks 0, 2, 5", with "and 93 more" after ten.
[[nodiscard]] std::string ranks_text(const std::vector<int>& ranks);

}  // namespace kolo::internal
