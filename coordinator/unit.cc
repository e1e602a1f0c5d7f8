#include "coordinator/unit.h"

#include <algorithm>

namespace kolo::internal {

bool Unit::is_cacheable() const {
  return !numbered && std::none_of(tensors.begin(), tensors.end(), [](const TensorSpec& spec) {
    return spec.is_personal() || is_set_change(spec.kind);
  });
}

std::uint32_t ended_set(const Unit& unit) {
  if (unit.group || unit.tensors.empty()) return 0;
  const TensorSpec& spec = unit.tensors.front();
  if (spec.kind != OpKind::kDestroySet || spec.shape.empty()) return 0;
  return static_cast<std::uint32_t>(spec.shape.front());
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  }
  return text + ")";
}

std::string name_text(const Unit& unit) {
  const std::string& name = unit.key.name;
  const bool set_change = !unit.tensors.empty() && is_set_change(unit.tensors.front().kind);
  if (set_change) return "'" + name.substr(name.find(':') + 1) + "'";
  return unit.numbered ? "number " + name.substr(1) : "'" + name + "'";
}

std::string unit_text(const Unit& unit) {
  const std::string what = unit.group             ? "group"
                           : unit.tensors.empty() ? "operation"
                                                  : std::string(op_kind_name(unit.tensors[0].kind));
  return what + " " + name_text(unit);
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
