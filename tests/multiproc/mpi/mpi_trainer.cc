// A rank that uses MPI itself: initialises it at the level that its argument names, uses it before,
// beside and after kolo, and finalises it. "finalized" has done so before kolo_init; "later" leaves
// it to kolo to initialise MPI, and uses it then. What kolo_init refuses is printed: exit code 3.
#include <mpi.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "tests/multiproc/mpi/sums.h"

namespace {

using namespace kolo::test;

bool check_mpi(int rounds) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int round = 0; round < rounds; ++round) {
    int sum = rank + 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum == size * (size + 1) / 2) continue;
    std::fprintf(stderr, "MPI_Allreduce gave %d\n", sum);
    return false;
  }
  return true;
}

// kolo and MPI side by side in two threads.
bool check_both(kolo_context* kolo) {
  std::atomic<bool> mpi_ok{false};
  std::thread other([&] { mpi_ok = check_mpi(500); });
  const bool kolo_ok = check_sums(kolo);
  other.join();
  return kolo_ok && mpi_ok;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int> levels = {{"single", MPI_THREAD_SINGLE},
                                             {"funneled", MPI_THREAD_FUNNELED},
                                             {"serialized", MPI_THREAD_SERIALIZED},
                                             {"multiple", MPI_THREAD_MULTIPLE},
                                             {"finalized", MPI_THREAD_MULTIPLE}};
  const std::string what = argc > 1 ? argv[1] : "multiple";
  const bool later = what == "later";
  if (!later) {
    const auto level = levels.find(what);
    if (level == levels.end()) return 2;
    int provided = 0;
    MPI_Init_thread(&argc, &argv, level->second, &provided);
    if (!check_mpi(10)) return 1;
  }
  if (what == "finalized") MPI_Finalize();
  kolo_context* kolo = nullptr;
  if (kolo_init(nullptr, &kolo) != KOLO_OK) {
    std::printf("refused: %s\n", kolo_last_error());
    std::fflush(stdout);
    if (what != "finalized") MPI_Finalize();
    return 3;
  }
  if (!check_both(kolo)) return 1;
  if (kolo_shutdown(kolo) != KOLO_OK) return complain("kolo_shutdown") ? 0 : 1;
  if (!check_mpi(10)) return 1;
  std::printf("done\n");
  std::fflush(stdout);
  MPI_Finalize();
  return 0;
}
