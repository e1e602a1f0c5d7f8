#include "coordinator/fusion_planner.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace kolo::internal {
namespace {

using FusionKey = std::tuple<std::uint32_t, DataType, ReduceOp, std::vector<int>>;

struct Bin {
  std::size_t cut = 0;
  std::uint64_t bytes = 0;
};

}  // namespace

std::vector<std::vector<std::uint32_t>> plan_fusion(const std::vector<UnitOrder>& units,
                                                    const FusionOptions& options) {
  std::vector<std::vector<std::uint32_t>> cuts;
  std::map<FusionKey, Bin> open;
  bool fused = false;
  std::uint32_t place = 0;
  for (const UnitOrder& order : units) {
    for (const TensorSpec& spec : order.unit->tensors) {
      const std::uint32_t here = place++;
      const std::uint64_t bytes = spec.count * element_bytes(spec.dtype);
      const bool alone = !order.payloads.empty() || spec.kind != OpKind::kAllreduce ||
                         bytes > std::min(options.tensor_bytes, options.threshold_bytes);
      if (alone) {
        cuts.push_back({here});
        continue;
      }
      const FusionKey key{order.unit->key.process_set, spec.dtype, spec.op, order.absent};
      const auto it = open.find(key);
      if (it != open.end() && it->second.bytes + bytes <= options.threshold_bytes) {
        it->second.bytes += bytes;
        cuts[it->second.cut].push_back(here);
        fused = true;
        continue;
      }
      open[key] = {cuts.size(), bytes};
      cuts.push_back({here});
    }
  }
  if (!fused) cuts.clear();
  return cuts;
}

}  // namespace kolo::internal
