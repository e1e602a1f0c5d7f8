// The words of kolo-bench: collectives, data types and operators with their names, and what a
// collective's bytes and bus bandwidth are. Pure functions over tables.
#pragma once

#include <kolo/kolo.h>

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace kolo::bench {

enum class Collective { kAllreduce, kReduceScatter, kAllgather, kAlltoall, kBroadcast, kBarrier };

std::string_view collective_name(Collective collective);
std::optional<Collective> parse_collective(std::string_view name);
bool reduces(Collective collective);       // it has an operator
bool has_in_place(Collective collective);  // input and output may share memory

std::string_view dtype_name(kolo_dtype dtype);  // "float32"
std::size_t dtype_bytes(kolo_dtype dtype);
bool is_float(kolo_dtype dtype);  // that can be reduced
bool is_fp8(kolo_dtype dtype);
// By kolo's names (float32, f32) or nccl-tests' (float, half).
std::optional<kolo_dtype> parse_dtype(std::string_view name);
const std::vector<kolo_dtype>& all_dtypes();

std::string_view op_name(kolo_op op);
std::optional<kolo_op> parse_op(std::string_view name);
const std::vector<kolo_op>& all_ops();

// Whether kolo reduces `dtype` by `op`; and whether MPI does.
bool can_reduce(kolo_dtype dtype, kolo_op op);
bool mpi_can_reduce(kolo_dtype dtype, kolo_op op);

// The `count` that the collective is called with (kolo.h), when the larger of a rank's input and
// output has at most `bytes`.
std::size_t count_for(Collective collective, std::size_t bytes, std::size_t dtype_bytes, int ranks);
// The elements of a rank's input and output for that count.
std::size_t input_count(Collective collective, std::size_t count, int ranks);
std::size_t output_count(Collective collective, std::size_t count, int ranks);

// Bus bandwidth over algorithm bandwidth, as nccl-tests define it, so that the figure compares with
// what a link can carry whatever the number n of ranks:
//   allreduce  2(n-1)/n    reduce_scatter, allgather, alltoall  (n-1)/n
//   broadcast  1           barrier  0
double bus_factor(Collective collective, int ranks);

}  // namespace kolo::bench
