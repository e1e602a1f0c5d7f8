#include "bench/kolo_bench/words.h"

#include <algorithm>
#include <array>

namespace kolo::bench {
namespace {

struct CollectiveRow {
  Collective collective;
  std::string_view name;
};
constexpr std::array kCollectives = {CollectiveRow{Collective::kAllreduce, "allreduce"},
                                     CollectiveRow{Collective::kReduceScatter, "reduce_scatter"},
                                     CollectiveRow{Collective::kAllgather, "allgather"},
                                     CollectiveRow{Collective::kAlltoall, "alltoall"},
                                     CollectiveRow{Collective::kBroadcast, "broadcast"},
                                     CollectiveRow{Collective::kBarrier, "barrier"}};

struct DtypeRow {
  kolo_dtype dtype;
  std::size_t bytes;
  std::string_view name, short_name, nccl_name;
};
constexpr std::array kDtypes = {DtypeRow{KOLO_INT8, 1, "int8", "i8", "char"},
                                DtypeRow{KOLO_UINT8, 1, "uint8", "u8", "uint8"},
                                DtypeRow{KOLO_INT32, 4, "int32", "i32", "int"},
                                DtypeRow{KOLO_UINT32, 4, "uint32", "u32", "uint32"},
                                DtypeRow{KOLO_INT64, 8, "int64", "i64", "int64"},
                                DtypeRow{KOLO_UINT64, 8, "uint64", "u64", "uint64"},
                                DtypeRow{KOLO_FLOAT16, 2, "float16", "f16", "half"},
                                DtypeRow{KOLO_FLOAT32, 4, "float32", "f32", "float"},
                                DtypeRow{KOLO_FLOAT64, 8, "float64", "f64", "double"},
                                DtypeRow{KOLO_BFLOAT16, 2, "bfloat16", "bf16", "bfloat16"},
                                DtypeRow{KOLO_FLOAT8_E4M3, 1, "float8_e4m3", "f8e4m3", "fp8_e4m3"},
                                DtypeRow{KOLO_FLOAT8_E5M2, 1, "float8_e5m2", "f8e5m2", "fp8_e5m2"},
                                DtypeRow{KOLO_BOOL, 1, "bool", "bool", "bool"},
                                DtypeRow{KOLO_INT16, 2, "int16", "i16", "int16"},
                                DtypeRow{KOLO_UINT16, 2, "uint16", "u16", "uint16"}};

struct OpRow {
  kolo_op op;
  std::string_view name;
};
constexpr std::array kOps = {OpRow{KOLO_SUM, "sum"}, OpRow{KOLO_PROD, "prod"},
                             OpRow{KOLO_MAX, "max"}, OpRow{KOLO_MIN, "min"},
                             OpRow{KOLO_AVG, "avg"}};

const DtypeRow& row_of(kolo_dtype dtype) {
  return *std::find_if(kDtypes.begin(), kDtypes.end(),
                       [&](const DtypeRow& row) { return row.dtype == dtype; });
}

}  // namespace

std::string_view collective_name(Collective collective) {
  return std::find_if(kCollectives.begin(), kCollectives.end(),
                      [&](const CollectiveRow& row) { return row.collective == collective; })
      ->name;
}

std::optional<Collective> parse_collective(std::string_view name) {
  for (const CollectiveRow& row : kCollectives) {
    if (name == row.name) return row.collective;
  }
  return std::nullopt;
}

bool reduces(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduceScatter;
}

bool has_in_place(Collective collective) {
  return collective != Collective::kAlltoall && collective != Collective::kBarrier;
}

std::string_view dtype_name(kolo_dtype dtype) { return row_of(dtype).name; }

std::size_t dtype_bytes(kolo_dtype dtype) { return row_of(dtype).bytes; }

bool is_float(kolo_dtype dtype) {
  return dtype == KOLO_FLOAT16 || dtype == KOLO_FLOAT32 || dtype == KOLO_FLOAT64 ||
         dtype == KOLO_BFLOAT16;
}

bool is_fp8(kolo_dtype dtype) { return dtype == KOLO_FLOAT8_E4M3 || dtype == KOLO_FLOAT8_E5M2; }

std::optional<kolo_dtype> parse_dtype(std::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (name == row.name || name == row.short_name || name == row.nccl_name) return row.dtype;
  }
  return std::nullopt;
}

const std::vector<kolo_dtype>& all_dtypes() {
  static const std::vector<kolo_dtype> kAll = [] {
    std::vector<kolo_dtype> all;
    for (const DtypeRow& row : kDtypes) all.push_back(row.dtype);
    return all;
  }();
  return kAll;
}

std::string_view op_name(kolo_op op) {
  return std::find_if(kOps.begin(), kOps.end(), [&](const OpRow& row) { return row.op == op; })
      ->name;
}

std::optional<kolo_op> parse_op(std::string_view name) {
  for (const OpRow& row : kOps) {
    if (name == row.name) return row.op;
  }
  return std::nullopt;
}

const std::vector<kolo_op>& all_ops() {
  static const std::vector<kolo_op> kAll = {KOLO_SUM, KOLO_PROD, KOLO_MAX, KOLO_MIN, KOLO_AVG};
  return kAll;
}

bool can_reduce(kolo_dtype dtype, kolo_op op) {
  return !is_fp8(dtype) && !(dtype == KOLO_BOOL && op == KOLO_AVG);
}

bool mpi_can_reduce(kolo_dtype dtype, kolo_op op) {
  const bool known_type = dtype != KOLO_FLOAT16 && dtype != KOLO_BFLOAT16 && !is_fp8(dtype);
  return known_type && op != KOLO_AVG;
}

std::size_t count_for(Collective collective, std::size_t bytes, std::size_t dtype_bytes,
                      int ranks) {
  const std::size_t elements = bytes / dtype_bytes;
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kAllgather:
    case Collective::kAlltoall: return elements / static_cast<std::size_t>(ranks);
    case Collective::kBarrier: return 0;
    case Collective::kAllreduce:
    case Collective::kBroadcast: break;
  }
  return elements;
}

std::size_t input_count(Collective collective, std::size_t count, int ranks) {
  const bool blocks =
      collective == Collective::kReduceScatter || collective == Collective::kAlltoall;
  return blocks ? count * static_cast<std::size_t>(ranks) : count;
}

std::size_t output_count(Collective collective, std::size_t count, int ranks) {
  const bool blocks = collective == Collective::kAllgather || collective == Collective::kAlltoall;
  return blocks ? count * static_cast<std::size_t>(ranks) : count;
}

double bus_factor(Collective collective, int ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::kAllreduce: return 2 * (n - 1) / n;
    case Collective::kReduceScatter:
    case Collective::kAllgather:
    case Collective::kAlltoall: return (n - 1) / n;
    case Collective::kBroadcast: return 1;
    case Collective::kBarrier: break;
  }
  return 0;
}

}  // namespace kolo::bench
