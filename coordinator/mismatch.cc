#include "coordinator/mismatch.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
#include <string>

namespace kolo::internal {
namespace {

using Describe = std::string (*)(const Unit&, std::size_t);

std::string kind_of(const Unit& unit, std::size_t i) {
  return std::string(op_kind_name(unit.tensors[i].kind));
}
std::string dtype_of(const Unit& unit, std::size_t i) {
  const DataType dtype = unit.tensors[i].dtype;
  if (!is_valid(dtype)) return "dtype " + std::to_string(static_cast<int>(dtype));
  return std::string(data_type_name(dtype));
}
std::string op_of(const Unit& unit, std::size_t i) {
  const ReduceOp op = unit.tensors[i].op;
  if (!is_valid(op)) return "op " + std::to_string(static_cast<int>(op));
  return std::string(reduce_op_name(op));
}
std::string shape_of(const Unit& unit, std::size_t i) { return shape_text(unit.tensors[i].shape); }
std::string count_of(const Unit& unit, std::size_t i) {
  return std::to_string(unit.tensors[i].count);
}
std::string root_of(const Unit& unit, std::size_t i) {
  return std::to_string(unit.tensors[i].root);
}
// The shortest text that reads back as this number: different numbers never look alike.
std::string number_text(double number) {
  char text[32];
  const auto end = std::to_chars(std::begin(text), std::end(text), number).ptr;
  return {text, end};
}
std::string scales_of(const Unit& unit, std::size_t i) {
  return number_text(unit.tensors[i].prescale) + "/" + number_text(unit.tensors[i].postscale);
}

struct Attribute {
  const char* name;
  Describe describe;
};
constexpr Attribute kAttributes[] = {
    {"operation", kind_of},
    {"dtype", dtype_of},
    {"op", op_of},
    {"shape", shape_of},
    {"count", count_of},
    {"root", root_of},
    {"prescale/postscale", scales_of},
};

// "names a, b, c (3 members)" of a group; "no group" of a single tensor.
std::string membership_of(const Unit& unit) {
  if (!unit.group) return "no group";
  std::string text = std::to_string(unit.tensors.size()) + " members";
  constexpr std::size_t kShown = 10;
  for (std::size_t i = 0; i < unit.tensors.size() && i < kShown; ++i) {
    text += (i == 0 ? " " : ", ") + unit.tensors[i].name;
  }
  return unit.tensors.size() > kShown ? text + ", ..." : text;
}

// "f32 on ranks 1, 2; bf16 on rank 0", or empty when all are equal.
std::string differing(const std::vector<Variant>& variants,
                      const std::function<std::string(const Unit&)>& describe) {
  std::vector<std::pair<std::string, std::vector<int>>> values;
  for (const Variant& variant : variants) {
    const std::string value = describe(*variant.unit);
    auto it = std::find_if(values.begin(), values.end(),
                           [&](const auto& entry) { return entry.first == value; });
    if (it == values.end()) it = values.insert(values.end(), {value, {}});
    it->second.insert(it->second.end(), variant.ranks.begin(), variant.ranks.end());
  }
  if (values.size() < 2) return {};
  std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) {
    return *std::min_element(a.second.begin(), a.second.end()) <
           *std::min_element(b.second.begin(), b.second.end());
  });
  std::string text;
  for (auto& [value, ranks] : values) {
    std::sort(ranks.begin(), ranks.end());
    text += (text.empty() ? "" : "; ") + value + " on " + ranks_text(ranks);
  }
  return text;
}

// The attribute that differs and its values, or empty.
std::string first_difference(const std::vector<Variant>& variants) {
  std::string text = differing(variants, membership_of);
  if (!text.empty()) return "group members differ: " + text;
  const Unit& first = *variants.front().unit;
  for (std::size_t i = 0; i < first.tensors.size(); ++i) {
    text = differing(variants, [i](const Unit& unit) { return "'" + unit.tensors[i].name + "'"; });
    if (first.group && !text.empty()) {  // beyond the names shown above
      return "group members differ: " + text + " as member " + std::to_string(i + 1);
    }
    for (const Attribute& attribute : kAttributes) {
      text = differing(variants, [&](const Unit& unit) { return attribute.describe(unit, i); });
      if (text.empty()) continue;
      const std::string member =
          first.group ? "member '" + first.tensors[i].name + "': " : std::string();
      return member + attribute.name + " differs: " + text;
    }
  }
  return {};
}

std::string name_of(const Unit& unit) {
  return unit.numbered ? "operation number " + unit.key.name.substr(1) : "'" + unit.key.name + "'";
}

}  // namespace

Status check_agreement(const PendingUnit& pending) {
  const auto& variants = pending.variants;
  if (variants.size() == 1 && variants.front().unit->invalid.empty()) return Status::ok();
  const Unit& first = *variants.front().unit;
  const std::string difference = first_difference(variants);
  const std::string name = name_of(first);
  for (const Variant& variant : variants) {
    if (variant.unit->invalid.empty()) continue;
    return {StatusCode::kMismatch, name + ": " + ranks_text(variant.ranks) + " refused it (" +
                                       variant.unit->invalid + ")" +
                                       (difference.empty() ? "" : "; " + difference) +
                                       ". Correct the call on that rank; no buffer was changed"};
  }
  if (difference.empty()) return Status::ok();
  return {StatusCode::kMismatch,
          name + ": " + difference +
              ". Submit the same on every rank, or use another name; no buffer was changed"};
}

Status check_absent(const Unit& unit, const std::vector<int>& absent) {
  if (absent.empty()) return Status::ok();
  for (const TensorSpec& spec : unit.tensors) {
    const bool root_absent = spec.kind == OpKind::kBroadcast &&
                             std::find(absent.begin(), absent.end(), spec.root) != absent.end();
    if (root_absent) {
      return invalid_argument(unit_text(unit) + ": its root, rank " + std::to_string(spec.root) +
                              ", has joined and has nothing to send. Choose another root");
    }
    if (spec.kind == OpKind::kAllgather) {
      return invalid_argument(unit_text(unit) + ": " + ranks_text(absent) +
                              " joined and cannot give rows. Gather before joining");
    }
  }
  return Status::ok();
}

}  // namespace kolo::internal
