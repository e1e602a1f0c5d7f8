// MPICH's worker. What MPICH talks over (UCX_TLS=tcp) is set by allreduce_peers.
#include <mpi.h>

#include "bench/peers/measure.h"

namespace kolo::bench {
namespace {

// MPI's default error handler ends the job by itself.
class MpiSystem final : public System {
 public:
  MpiSystem(int* argc, char*** argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiSystem() override { MPI_Finalize(); }
  MpiSystem(const MpiSystem&) = delete;
  MpiSystem& operator=(const MpiSystem&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  void prepare(float* data, std::size_t count) override {
    data_ = data;
    count_ = static_cast<int>(count);
    if (static_cast<std::size_t>(count_) != count) die("MPI counts elements in an int");
  }

  void allreduce() override {
    MPI_Allreduce(MPI_IN_PLACE, data_, count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }

  double sum(double value) override {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return value;
  }

 private:
  int rank_ = 0;
  int size_ = 1;
  float* data_ = nullptr;
  int count_ = 0;
};

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) {
  kolo::bench::MpiSystem system(&argc, &argv);
  kolo::bench::run(kolo::bench::parse_work(argc, argv), system);
}
