// kolo-bench: a rank of a job that measures kolo, or, with --peer, the driver of such jobs.
#include <cstdlib>
#include <iostream>

#include "bench/common/usage.h"
#include "bench/kolo_bench/compare.h"
#include "bench/kolo_bench/kolo_library.h"
#include "bench/kolo_bench/measure.h"
#include "bench/kolo_bench/options.h"

int main(int argc, char** argv) {
  const kolo::bench::Options options = kolo::bench::parse_options(argc, argv);
  if (!options.peer.empty()) {
    if (std::getenv("KOLO_RANK") != nullptr) {
      kolo::bench::usage_error("--peer starts its own jobs: run it without kolorun");
    }
    return kolo::bench::compare(options);
  }
  const auto library = kolo::bench::make_kolo_library(options.memory);
  return kolo::bench::run_rank(options, *library);
}
