#include "tests/multiproc/random/program.h"

#include <algorithm>

#include "base/types.h"

namespace kolo::programs {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllreduce: return "allreduce";
    case Kind::kReduceScatter: return "reduce_scatter";
    case Kind::kAllgather: return "allgather";
    case Kind::kAlltoall: return "alltoall";
    case Kind::kBroadcast: return "broadcast";
    case Kind::kBarrier: return "barrier";
    case Kind::kCreate: return "pset_create";
    case Kind::kDestroy: return "pset_destroy";
  }
  return "?";
}

bool Unit::has_wrong() const {
  return std::any_of(members.begin(), members.end(),
                     [](const Operation& member) { return member.wrong != Wrong::kNothing; });
}

int SetRanks::place_of(int rank) const {
  const auto at = std::find(ranks.begin(), ranks.end(), rank);
  return at == ranks.end() ? -1 : static_cast<int>(at - ranks.begin());
}

std::size_t bytes_of(kolo_dtype dtype) {
  return internal::element_bytes(static_cast<internal::DataType>(dtype));
}

bool is_float(kolo_dtype dtype) {
  return internal::is_floating(static_cast<internal::DataType>(dtype));
}

bool reduces(Kind kind) { return kind == Kind::kAllreduce || kind == Kind::kReduceScatter; }

bool is_wrong(const Operation& operation, int rank) {
  return operation.wrong != Wrong::kNothing &&
         std::binary_search(operation.wrong_ranks.begin(), operation.wrong_ranks.end(), rank);
}

Operation as_submitted(const Operation& operation, int rank) {
  Operation mine = operation;
  if (!is_wrong(operation, rank)) return mine;
  switch (operation.wrong) {
    case Wrong::kCount: mine.count += 1; break;
    case Wrong::kDtype: mine.dtype = mine.dtype == KOLO_INT32 ? KOLO_FLOAT32 : KOLO_INT32; break;
    case Wrong::kOp: mine.op = mine.op == KOLO_MAX ? KOLO_MIN : KOLO_MAX; break;
    case Wrong::kRoot: mine.root = rank; break;
    case Wrong::kScale: mine.prescale += 0.5; break;
    case Wrong::kKind:
      mine.kind = mine.kind == Kind::kBroadcast ? Kind::kAllreduce : Kind::kBroadcast;
      mine.root = rank;
      mine.op = KOLO_SUM;
      mine.prescale = mine.postscale = 1.0;
      break;
    case Wrong::kShape: mine.matrix = !mine.matrix; break;
    case Wrong::kRefused:  // the shape does not fit, see rank.cc
    case Wrong::kNothing: break;
  }
  return mine;
}

std::string text_of(const Operation& operation) {
  std::string text = name_of(operation.kind);
  if (!operation.name.empty()) text += " '" + operation.name + "'";
  const auto dtype = static_cast<internal::DataType>(operation.dtype);
  text += " " + std::string(internal::data_type_name(dtype)) + "[" +
          std::to_string(operation.count) + "]";
  const auto op = static_cast<internal::ReduceOp>(operation.op);
  if (reduces(operation.kind)) text += " " + std::string(internal::reduce_op_name(op));
  if (!operation.counts.empty() || !operation.blocks.empty()) text += " ragged";
  if (operation.allocate) text += " allocate";
  if (operation.persistent) text += " persistent";
  return text + ", set " + std::to_string(operation.set) + ", id " + std::to_string(operation.id);
}

}  // namespace kolo::programs
