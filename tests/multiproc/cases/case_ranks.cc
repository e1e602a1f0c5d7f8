// case_ranks ID: one rank of the situation ID. Ends with 0 (or the code that the situation asks
// for) if everything came out right on this rank; otherwise prints the reason and ends with 90.
#include <cstdio>
#include <string_view>

#include "tests/multiproc/cases/job.h"

int main(int argc, char** argv) {
  using namespace kolo::cases;
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  for (const auto& list :
       {agreement_situations(), number_situations(), exact_situations(), shape_situations(),
        size_situations(), ending_situations(), argument_situations(), request_situations(),
        resource_situations(), set_situations(), join_situations(), mixed_situations(),
        wide_situations(), lifecycle_situations(), shutdown_situations(), failure_situations()}) {
    for (const Situation& situation : list) {
      if (wanted == situation.id) return situation.run();
    }
  }
  std::fprintf(stderr, "case_ranks: no situation '%s'\n", argc > 1 ? argv[1] : "");
  return 2;
}
