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
// "(3,4)", "none"; those of an all-to-all are each rank's own affair, but all have some or none.
std::string counts_of(const Unit& unit, std::size_t i) {
  const TensorSpec& spec = unit.tensors[i];
  if (spec.counts.empty()) return "none";
  if (spec.is_personal()) return "some";
  return shape_text({spec.counts.begin(), spec.counts.end()});
}
std::string allocate_of(const Unit& unit, std::size_t i) {
  return unit.tensors[i].open ? "yes" : "no";
}
// Without the first dimension where that is each rank's own affair, or told by the counts.
std::string shape_of(const Unit& unit, std::size_t i) {
  const TensorSpec& spec = unit.tensors[i];
  std::string text = shape_text(spec.shape);
  if ((spec.is_personal() || !spec.counts.empty()) && !spec.shape.empty()) {
    text.replace(1, text.find_first_of(",)") - 1, "*");
  }
  return text;
}
std::string count_of(const Unit& unit, std::size_t i) {
  const TensorSpec& spec = unit.tensors[i];
  return spec.is_personal() ? "*" : std::to_string(spec.count);
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
    {"allocate", allocate_of},
    {"counts by rank", counts_of},
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
      const bool ranks = first.tensors[i].kind == OpKind::kCreateSet &&
                         std::string_view(attribute.name) == "shape";
      return member + (ranks ? "ranks" : attribute.name) + " differs: " + text;
    }
  }
  return {};
}

std::string name_of(const Unit& unit) {
  const bool set_change = !unit.group && is_set_change(unit.tensors.front().kind);
  if (set_change) return unit_text(unit);
  return (unit.numbered ? "operation " : "") + name_text(unit);
}

// What to do about variants that differ.
std::string cure_of(const std::vector<Variant>& variants) {
  const Unit& first = *variants.front().unit;
  const auto all = [&](auto holds) {
    return std::all_of(variants.begin(), variants.end(),
                       [&](const Variant& variant) { return holds(*variant.unit); });
  };
  if (first.numbered && !first.group) {
    return "Operations without a name pair by their order: submit them in one order on every rank, "
           "or name them";
  }
  const bool even = all([](const Unit& unit) {
    return !unit.group && unit.tensors[0].counts.empty() && !unit.tensors[0].open;
  });
  const auto of_kind = [&](OpKind kind) {
    return even && all([&](const Unit& unit) { return unit.tensors[0].kind == kind; }) &&
           !differing(variants, [](const Unit& unit) { return count_of(unit, 0); }).empty();
  };
  if (of_kind(OpKind::kAllgather)) {
    return "Ranks that give different counts need recv_counts, or allocate";
  }
  if (of_kind(OpKind::kAlltoall)) {
    return "Ranks that send different counts need send_counts with recv_counts or allocate";
  }
  return "Submit the same on every rank, or use another name";
}

// What a rank that has joined would have to give to this tensor, and has not; else empty.
std::string lacking(const TensorSpec& spec, const std::vector<int>& absent) {
  const std::string joined =
      ranks_text(absent) + (absent.size() == 1 ? " has" : " have") + " joined";
  switch (spec.kind) {
    case OpKind::kAllreduce:
    case OpKind::kReduceScatter:
      if (spec.op != ReduceOp::kProd || spec.prescale == 1.0) return {};
      return joined + ", and no input times prescale is neutral to a product. Use prescale 1";
    case OpKind::kAllgather:
      if (spec.open) return {};
      return joined + " and cannot give rows. Gather before joining, or with allocate";
    case OpKind::kAlltoall: return joined + " and cannot send blocks. Exchange before joining";
    case OpKind::kBroadcast:
      if (std::find(absent.begin(), absent.end(), spec.root) == absent.end()) return {};
      return "its root, rank " + std::to_string(spec.root) +
             ", has joined and has nothing to send. Choose another root";
    case OpKind::kCreateSet:
    case OpKind::kDestroySet:
      return joined + " the world and cannot call it. Call it before joining, or after";
    case OpKind::kBarrier: break;
  }
  return {};
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
          name + ": " + difference + ". " + cure_of(variants) + "; no buffer was changed"};
}

Status check_absent(const Unit& unit, const std::vector<int>& absent) {
  if (absent.empty()) return Status::ok();
  for (const TensorSpec& spec : unit.tensors) {
    const std::string why = lacking(spec, absent);
    if (!why.empty()) return invalid_argument(unit_text(unit) + ": " + why);
  }
  return Status::ok();
}

}  // namespace kolo::internal
