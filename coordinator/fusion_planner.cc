#include "coordinator/fusion_planner.h"

#include <algorithm>

namespace kolo::internal {
namespace {

bool fuse(const FusionItem& a, const FusionItem& b) {
  static const std::vector<int> kNone;
  const auto& absent_a = a.absent == nullptr ? kNone : *a.absent;
  const auto& absent_b = b.absent == nullptr ? kNone : *b.absent;
  static const std::vector<std::int32_t> kHost;
  const auto& devices_a = a.devices == nullptr ? kHost : *a.devices;
  const auto& devices_b = b.devices == nullptr ? kHost : *b.devices;
  const bool alike =
      a.kind == OpKind::kBroadcast ? a.root == b.root : a.dtype == b.dtype && a.op == b.op;
  return a.process_set == b.process_set && a.kind == b.kind && alike && absent_a == absent_b &&
         devices_a == devices_b;
}

}  // namespace

FusionItem fusion_item(std::uint32_t process_set, const TensorSpec& spec) {
  return {.bytes = spec.count * element_bytes(spec.dtype),
          .fusible = spec.kind == OpKind::kBroadcast ||
                     (spec.kind == OpKind::kAllreduce && spec.op != ReduceOp::kAdasum),
          .process_set = process_set,
          .kind = spec.kind,
          .dtype = spec.dtype,
          .op = spec.op,
          .root = spec.root,
          .absent = nullptr,
          .devices = &spec.devices};
}

std::span<const std::uint32_t> FusionPlanner::assign(std::span<const FusionItem> items) {
  cut_of_.clear();
  open_.clear();
  cuts_ = 0;
  for (const FusionItem& item : items) {
    const bool alone =
        !item.fusible || item.bytes > std::min(options_.tensor_bytes, options_.threshold_bytes);
    if (alone) {
      cut_of_.push_back(cuts_++);
      continue;
    }
    const auto bin = std::find_if(open_.begin(), open_.end(),
                                  [&](const Bin& open) { return fuse(*open.like, item); });
    if (bin != open_.end() && bin->bytes + item.bytes <= options_.threshold_bytes) {
      bin->bytes += item.bytes;
      cut_of_.push_back(bin->cut);
      continue;
    }
    if (bin == open_.end()) {
      open_.push_back({&item, cuts_, item.bytes});
    } else {
      *bin = {&item, cuts_, item.bytes};
    }
    cut_of_.push_back(cuts_++);
  }
  return cut_of_;
}

std::vector<std::vector<std::uint32_t>> plan_fusion(const std::vector<UnitOrder>& units,
                                                    const FusionOptions& options) {
  std::vector<FusionItem> items;
  for (const UnitOrder& order : units) {
    for (const TensorSpec& spec : order.unit->tensors) {
      FusionItem item = fusion_item(order.unit->key.process_set, spec);
      item.fusible = item.fusible && order.payloads.empty();
      item.absent = &order.absent;
      items.push_back(item);
    }
  }
  FusionPlanner planner(options);
  const auto cut_of = planner.assign(items);
  if (planner.cuts() == items.size()) return {};
  std::vector<std::vector<std::uint32_t>> cuts(planner.cuts());
  for (std::uint32_t place = 0; place < cut_of.size(); ++place) {
    cuts[cut_of[place]].push_back(place);
  }
  return cuts;
}

}  // namespace kolo::internal
