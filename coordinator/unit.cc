#include "coordinator/unit.h"

#include <algorithm>

namespace kolo::internal {

bool Unit::is_cacheable() const {
  return !numbered && std::none_of(tensors.begin(), tensors.end(), [](const TensorSpec& spec) {
    return spec.is_personal() || spec.kind == OpKind::kCreateSet ||
           spec.kind == OpKind::kDestroySet;
  });
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  }
  return text + ")";
}

std::string unit_text(const Unit& unit) {
  const std::string what = unit.group             ? "group"
                           : unit.tensors.empty() ? "operation"
                                                  : std::string(op_kind_name(unit.tensors[0].kind));
  if (unit.numbered) return what + " number " + unit.key.name.substr(1);
  return what + " '" + unit.key.name + "'";
}

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 10;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < kShown; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text;
}

}  // namespace kolo::internal
