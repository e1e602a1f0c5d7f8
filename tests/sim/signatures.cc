#include "tests/sim/signatures.h"

#include <numeric>

namespace kolo::internal {
namespace {

TensorSpec random_tensor(std::string name, Rng& rng) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.dtype = rng.chance(70) ? DataType::kFloat32 : DataType::kInt32;
  spec.op = static_cast<ReduceOp>(rng.below(kReduceOpCount));
  if (spec.dtype == DataType::kFloat32 && rng.chance(5)) spec.op = ReduceOp::kAdasum;
  spec.count = rng.below(std::uint64_t{rng.chance(50) ? 11U : 24U});
  spec.shape = {static_cast<std::int64_t>(spec.count)};
  if (spec.dtype == DataType::kFloat32 && rng.chance(20)) spec.prescale = 0.5;
  if (spec.dtype == DataType::kFloat32 && rng.chance(20)) spec.postscale = 4.0;
  return spec;
}

void give_counts(TensorSpec& spec, std::size_t size, Rng& rng) {
  spec.counts.resize(size);
  for (std::uint64_t& count : spec.counts) count = rng.below(std::uint64_t{5});
  spec.count = std::accumulate(spec.counts.begin(), spec.counts.end(), std::uint64_t{0});
  spec.shape = {static_cast<std::int64_t>(spec.count)};
}

// Another kind than an all-reduce.
void make_kind(TensorSpec& spec, const std::vector<int>& ranks, Rng& rng) {
  static const std::vector<OpKind> kKinds = {
      OpKind::kAllgather, OpKind::kAllgather, OpKind::kBroadcast,     OpKind::kBroadcast,
      OpKind::kBarrier,   OpKind::kAlltoall,  OpKind::kReduceScatter, OpKind::kReduceScatter};
  spec.kind = rng.pick(kKinds);
  if (spec.kind == OpKind::kBarrier) spec.count = 0;
  if (spec.kind == OpKind::kBroadcast) spec.root = rng.pick(ranks);
  if (spec.kind == OpKind::kReduceScatter) {
    if (spec.op == ReduceOp::kAdasum) spec.op = ReduceOp::kSum;
  } else {
    spec.op = ReduceOp::kSum;
    spec.prescale = spec.postscale = 1.0;
  }
  const bool has_counts = spec.kind == OpKind::kAllgather || spec.kind == OpKind::kAlltoall ||
                          spec.kind == OpKind::kReduceScatter;
  if (!has_counts || rng.chance(40)) return;
  if (spec.kind == OpKind::kAllgather && rng.chance(60)) {
    spec.open = true;
  } else {
    give_counts(spec, ranks.size(), rng);
  }
}

}  // namespace

Unit random_signature(const UnitKey& key, const std::vector<int>& ranks, Rng& rng) {
  Unit unit;
  unit.key = key;
  const int dice = rng.below(100);
  unit.group = dice < 15;
  const int members = unit.group ? 1 + rng.below(4) : 1;
  for (int i = 0; i < members; ++i) {
    unit.tensors.push_back(random_tensor(unit.group ? "m" + std::to_string(i) : key.name, rng));
    const bool other = unit.group ? rng.chance(20) : dice >= 65;
    if (other) make_kind(unit.tensors.back(), ranks, rng);
  }
  return unit;
}

void personalise(std::vector<Unit>& units, std::size_t tensor, std::size_t set_size, Rng& rng) {
  for (Unit& unit : units) {
    TensorSpec& spec = unit.tensors[tensor];
    if (spec.open) {
      spec.count = rng.below(std::uint64_t{6});
      spec.shape = {static_cast<std::int64_t>(spec.count)};
    } else {
      give_counts(spec, set_size, rng);
    }
  }
  if (units.size() != set_size) return;
  for (std::size_t i = 0; i < units.size(); ++i) {
    TensorSpec& spec = units[i].tensors[tensor];
    if (spec.open || !rng.chance(50)) continue;
    for (const Unit& sender : units) {
      spec.receive_counts.push_back(sender.tensors[tensor].counts[i]);
    }
  }
}

}  // namespace kolo::internal
