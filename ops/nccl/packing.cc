#include "ops/nccl/packing.h"

#include <algorithm>

namespace kolo::internal::nccl {

bool plan_packing(std::span<const PackingItem> tensors, std::size_t limit,
                  std::vector<bool>& packed) {
  packed.assign(tensors.size(), false);
  const PackingItem* first = nullptr;
  std::size_t count = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const PackingItem& item = tensors[i];
    if (item.bytes > limit || limit == 0) continue;
    if (first == nullptr) first = &item;
    if (item.prescale != first->prescale || item.postscale != first->postscale) continue;
    packed[i] = true;
    ++count;
  }
  if (count >= 2) return true;
  packed.assign(tensors.size(), false);
  return false;
}

}  // namespace kolo::internal::nccl
