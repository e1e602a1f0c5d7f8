// MPICH beside kolo-bench: the same command line, the same measurement, MPI's collectives.
#include <kolo/kolo.h>
#include <mpi.h>

#include <climits>
#include <cstdlib>
#include <cstring>

#include "bench/common/text.h"
#include "bench/kolo_bench/library.h"
#include "bench/kolo_bench/measure.h"

namespace kolo::bench {
namespace {

MPI_Datatype type_of(kolo_dtype dtype) {
  switch (dtype) {
    case KOLO_INT8: return MPI_INT8_T;
    case KOLO_UINT8: return MPI_UINT8_T;
    case KOLO_INT16: return MPI_INT16_T;
    case KOLO_UINT16: return MPI_UINT16_T;
    case KOLO_INT32: return MPI_INT32_T;
    case KOLO_UINT32: return MPI_UINT32_T;
    case KOLO_INT64: return MPI_INT64_T;
    case KOLO_UINT64: return MPI_UINT64_T;
    case KOLO_FLOAT32: return MPI_FLOAT;
    case KOLO_FLOAT64: return MPI_DOUBLE;
    case KOLO_BOOL: return MPI_C_BOOL;
    default: return dtype_bytes(dtype) == 2 ? MPI_UINT16_T : MPI_BYTE;  // moved, never reduced
  }
}

MPI_Op op_of(kolo_dtype dtype, kolo_op op) {
  const bool logical = dtype == KOLO_BOOL;
  switch (op) {
    case KOLO_SUM: return logical ? MPI_LOR : MPI_SUM;
    case KOLO_MAX: return logical ? MPI_LOR : MPI_MAX;
    case KOLO_PROD: return logical ? MPI_LAND : MPI_PROD;
    default: return logical ? MPI_LAND : MPI_MIN;
  }
}

int int_count(std::size_t count) {
  if (count > INT_MAX) die("MPI counts elements in an int");
  return static_cast<int>(count);
}

// MPI's default error handler ends the job by itself.
class MpiLibrary final : public Library {
 public:
  MpiLibrary(int* argc, char*** argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiLibrary() override { MPI_Finalize(); }
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] Facts facts() const override {
    const char* transport = std::getenv("UCX_TLS");
    return {"mpich", MPICH_VERSION, transport == nullptr ? "default" : transport, 1, "malloc"};
  }
  [[nodiscard]] bool can_reduce(kolo_dtype dtype, kolo_op op) const override {
    return mpi_can_reduce(dtype, op);
  }

  void prepare(const Call& call) override { call_ = call; }
  void run() override { run(call_); }

  // MPI has no names: all ranks must call in one order, that of a backward pass.
  void prepare_step(const std::vector<Call>& calls, bool /*persistent*/) override {
    calls_ = calls;
  }
  void set_order(const std::vector<std::size_t>& /*order*/) override {}
  void step() override {
    for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) run(*call);
  }

  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void largest(std::vector<double>& values) override {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), int_count(values.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
  }
  double sum(double value) override {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return value;
  }

  void* allocate(std::size_t bytes) override { return allocate_plain(bytes); }
  void release(void* memory) override { std::free(memory); }
  std::map<std::string, double> counters() override { return {}; }

 private:
  // In place MPI leaves every rank's result in the first block; kolo, NCCL and the check want it in
  // the rank's own.
  void reduce_scatter(const Call& call, MPI_Datatype type) const {
    const int count = int_count(call.count);
    const MPI_Op op = op_of(call.dtype, call.op);
    const std::size_t bytes = call.count * dtype_bytes(call.dtype);
    const auto* own =
        static_cast<const std::byte*>(call.input) + static_cast<std::size_t>(rank_) * bytes;
    if (call.output != own) {
      MPI_Reduce_scatter_block(call.input, call.output, count, type, op, MPI_COMM_WORLD);
      return;
    }
    auto* memory =
        static_cast<std::byte*>(call.output) - (own - static_cast<const std::byte*>(call.input));
    MPI_Reduce_scatter_block(MPI_IN_PLACE, memory, count, type, op, MPI_COMM_WORLD);
    if (rank_ != 0) std::memcpy(call.output, memory, bytes);
  }

  void run(const Call& call) const {
    const int count = int_count(call.count);
    const MPI_Datatype type = type_of(call.dtype);
    const std::size_t bytes = call.count * dtype_bytes(call.dtype);
    switch (call.collective) {
      case Collective::kAllreduce:
        MPI_Allreduce(call.input == call.output ? MPI_IN_PLACE : call.input, call.output, count,
                      type, op_of(call.dtype, call.op), MPI_COMM_WORLD);
        break;
      case Collective::kReduceScatter: reduce_scatter(call, type); break;
      case Collective::kAllgather: {
        const auto* own =
            static_cast<std::byte*>(call.output) + static_cast<std::size_t>(rank_) * bytes;
        MPI_Allgather(call.input == own ? MPI_IN_PLACE : call.input, count, type, call.output,
                      count, type, MPI_COMM_WORLD);
        break;
      }
      case Collective::kAlltoall:
        MPI_Alltoall(call.input, count, type, call.output, count, type, MPI_COMM_WORLD);
        break;
      case Collective::kBroadcast:  // only in place: the root copies first
        if (rank_ == call.root && call.input != call.output) {
          std::memcpy(call.output, call.input, bytes);
        }
        MPI_Bcast(call.output, count, type, call.root, MPI_COMM_WORLD);
        break;
      case Collective::kBarrier: MPI_Barrier(MPI_COMM_WORLD); break;
    }
  }

  int rank_ = 0;
  int size_ = 1;
  Call call_;
  std::vector<Call> calls_;
};

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) {
  const kolo::bench::Options options = kolo::bench::parse_options(argc, argv);
  kolo::bench::MpiLibrary library(&argc, &argv);
  return kolo::bench::run_rank(options, library);
}
