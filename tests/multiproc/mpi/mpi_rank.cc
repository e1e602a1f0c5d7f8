// A rank that knows nothing of MPI, started by mpiexec or kolorun. What it does is its argument:
//   sums          all-reduces; prints the road that carried them
//   twice         the same, after which the context comes and goes once more
//   late          rank 0 stays half a second longer than the others, and says so
//   fails         the last rank ends with 7 after its shutdown
//   hangs-up      the last rank is killed in the middle; the others report what they get
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "tests/multiproc/mpi/sums.h"

namespace {

using namespace kolo::test;

kolo_context* start() {
  kolo_context* kolo = nullptr;
  if (kolo_init(nullptr, &kolo) != KOLO_OK) complain("kolo_init");
  return kolo;
}

bool end(kolo_context* kolo) { return kolo_shutdown(kolo) == KOLO_OK || complain("kolo_shutdown"); }

bool run_sums() {
  kolo_context* kolo = start();
  if (kolo == nullptr || !check_sums(kolo)) return false;
  const char* info = "";
  if (kolo_info(kolo, &info) != KOLO_OK) return complain("kolo_info");
  std::printf("rank %d of %d, local %d of %d: %s\n", kolo_rank(kolo), kolo_size(kolo),
              kolo_local_rank(kolo), kolo_local_size(kolo), info);
  return end(kolo);
}

int run_late(int exit_code_of_last) {
  kolo_context* kolo = start();
  if (kolo == nullptr || !check_sum(kolo, 5000)) return 1;
  const int rank = kolo_rank(kolo);
  const bool last = rank == kolo_size(kolo) - 1;
  if (!end(kolo)) return 1;
  if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  std::printf("rank %d ends\n", rank);
  return last ? exit_code_of_last : 0;
}

int run_hangs_up() {
  kolo_context* kolo = start();
  if (kolo == nullptr || !check_sum(kolo, 5000)) return 1;
  // Where the last rank has it, the others have their sum; to them it may fail.
  const kolo_status met = kolo_barrier(kolo, nullptr, nullptr);
  if (kolo_rank(kolo) == kolo_size(kolo) - 1) {
    if (met != KOLO_OK) return 1;
    std::raise(SIGKILL);
  }
  std::vector<float> values(1 << 20);
  const kolo_status status = kolo_allreduce(kolo, values.data(), values.data(), values.size(),
                                            KOLO_FLOAT32, KOLO_SUM, nullptr, nullptr);
  std::printf("rank %d: %s\n", kolo_rank(kolo), kolo_last_error());
  std::fflush(stdout);
  return status == KOLO_PEER_LOST ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "sums";
  if (what == "sums") return run_sums() ? 0 : 1;
  if (what == "twice") return run_sums() && run_sums() ? 0 : 1;
  if (what == "late") return run_late(0);
  if (what == "fails") return run_late(7);
  if (what == "hangs-up") return run_hangs_up();
  return 2;
}
