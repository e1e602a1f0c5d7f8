#include "coordinator/personal_counts.h"

#include <algorithm>
#include <string>

namespace kolo::internal {
namespace {

// By place in the process set; null: absent.
std::vector<const Unit*> units_by_place(const PendingUnit& pending, const std::vector<int>& ranks) {
  std::vector<const Unit*> units(ranks.size());
  for (const Variant& variant : pending.variants) {
    for (const int rank : variant.ranks) {
      const auto place = std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
      units[static_cast<std::size_t>(place)] = variant.unit.get();
    }
  }
  return units;
}

std::string tensor_text(const Unit& unit, std::size_t i) {
  return unit_text(unit) +
         (unit.group ? ", member '" + unit.tensors[i].name + "'" : std::string()) + ": ";
}

// The numbers of tensor `i`: a row for each rank.
std::vector<std::uint64_t> rows_of(const std::vector<const Unit*>& units, std::size_t i,
                                   OpKind kind) {
  const std::size_t width = kind == OpKind::kAlltoall ? units.size() : 1;
  std::vector<std::uint64_t> rows;
  rows.reserve(units.size() * width);
  for (const Unit* unit : units) {
    if (unit == nullptr) {
      rows.insert(rows.end(), width, 0);
    } else if (kind == OpKind::kAlltoall) {
      const auto& counts = unit->tensors[i].counts;
      rows.insert(rows.end(), counts.begin(), counts.end());
    } else {
      rows.push_back(unit->tensors[i].count);
    }
  }
  return rows;
}

std::vector<std::uint64_t> column_of(const std::vector<std::uint64_t>& rows, std::size_t size,
                                     std::size_t place) {
  std::vector<std::uint64_t> column;
  for (std::size_t sender = 0; sender < size; ++sender) {
    column.push_back(rows[sender * size + place]);
  }
  return column;
}

// All ranks expect what they are sent.
Status check_expected(const std::vector<const Unit*>& units, std::size_t i,
                      const std::vector<std::uint64_t>& rows, const std::vector<int>& ranks) {
  const std::size_t size = ranks.size();
  for (std::size_t receiver = 0; receiver < size; ++receiver) {
    if (units[receiver] == nullptr) continue;
    const auto& expected = units[receiver]->tensors[i].receive_counts;
    for (std::size_t sender = 0; sender < expected.size(); ++sender) {
      const std::uint64_t sent = rows[sender * size + receiver];
      if (expected[sender] == sent) continue;
      return {StatusCode::kMismatch,
              tensor_text(*units[receiver], i) + "rank " + std::to_string(ranks[receiver]) +
                  " expects " + std::to_string(expected[sender]) + " elements of rank " +
                  std::to_string(ranks[sender]) + ", which sends it " + std::to_string(sent) +
                  ". Make recv_counts what the others send, or let the library allocate the "
                  "output; no buffer was changed"};
    }
  }
  return Status::ok();
}

Status check_numbers(const Unit& unit, std::size_t i, std::size_t size) {
  const TensorSpec& spec = unit.tensors[i];
  for (const auto* counts : {&spec.counts, &spec.receive_counts}) {
    if (counts->empty() || counts->size() == size) continue;
    return invalid_argument(tensor_text(unit, i) + std::to_string(counts->size()) +
                            " counts for a process set of " + std::to_string(size) +
                            " ranks. Give one for each");
  }
  return Status::ok();
}

// What the largest buffer of any rank holds.
Status check_sums(const Unit& unit, std::size_t i, const std::vector<std::uint64_t>& rows,
                  std::size_t size) {
  const TensorSpec& spec = unit.tensors[i];
  bool holds = true;
  if (spec.is_personal() && spec.kind == OpKind::kAlltoall) {
    for (std::size_t place = 0; place < size; ++place) {
      holds = holds && can_be_held(column_of(rows, size, place), spec.dtype);
    }
  } else if (spec.is_personal()) {
    holds = can_be_held(rows, spec.dtype);
  } else if (!spec.counts.empty()) {
    holds = can_be_held(spec.counts, spec.dtype);
  } else if (spec.kind == OpKind::kAllgather || spec.kind == OpKind::kAlltoall ||
             spec.kind == OpKind::kReduceScatter) {
    holds = spec.count <= kTensorBytesMax / element_bytes(spec.dtype) / size;
  }
  if (holds) return Status::ok();
  return invalid_argument(tensor_text(unit, i) +
                          "more than 2^63 bytes of all ranks together. Correct the counts");
}

}  // namespace

bool can_be_held(std::span<const std::uint64_t> counts, DataType dtype) {
  std::uint64_t left = kTensorBytesMax / element_bytes(dtype);
  for (const std::uint64_t count : counts) {
    if (count > left) return false;
    left -= count;
  }
  return true;
}

Result<OrderCounts> gather_counts(const PendingUnit& pending, const std::vector<int>& ranks) {
  const std::vector<const Unit*> units = units_by_place(pending, ranks);
  const Unit& first = *pending.variants.front().unit;
  OrderCounts all;
  for (std::size_t i = 0; i < first.tensors.size(); ++i) {
    for (const Variant& variant : pending.variants) {
      KOLO_RETURN_IF_ERROR(check_numbers(*variant.unit, i, ranks.size()));
    }
    const TensorSpec& spec = first.tensors[i];
    std::vector<std::uint64_t> rows;
    if (spec.is_personal()) {
      rows = rows_of(units, i, spec.kind);
      KOLO_RETURN_IF_ERROR(check_expected(units, i, rows, ranks));
    }
    KOLO_RETURN_IF_ERROR(check_sums(first, i, rows, ranks.size()));
    if (spec.is_personal()) all.push_back(std::move(rows));
  }
  return all;
}

bool counts_fit(const OrderCounts& counts, const Unit& unit, std::size_t size) {
  std::size_t next = 0;
  for (const TensorSpec& spec : unit.tensors) {
    if (!spec.is_personal()) continue;
    if (next == counts.size()) return false;
    const auto& rows = counts[next++];
    const bool square = spec.kind == OpKind::kAlltoall;
    if (rows.size() != (square ? size * size : size)) return false;
    if (!can_be_held(rows, spec.dtype)) {
      if (!square) return false;
      for (std::size_t place = 0; place < size; ++place) {
        const auto row = std::span(rows).subspan(place * size, size);
        if (!can_be_held(row, spec.dtype)) return false;
        if (!can_be_held(column_of(rows, size, place), spec.dtype)) return false;
      }
    }
  }
  return next == counts.size();
}

bool counts_tell(const OrderCounts& counts, const Unit& submitted, std::size_t place) {
  std::size_t next = 0;
  for (const TensorSpec& spec : submitted.tensors) {
    if (!spec.is_personal()) continue;
    const auto& rows = counts[next++];
    const std::size_t size = spec.counts.size();
    const bool told =
        spec.kind == OpKind::kAlltoall
            ? std::ranges::equal(std::span(rows).subspan(place * size, size), spec.counts)
            : rows[place] == spec.count;
    if (!told) return false;
  }
  return true;
}

}  // namespace kolo::internal
