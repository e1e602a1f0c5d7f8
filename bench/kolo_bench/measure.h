// What a rank does: a sweep over sizes, percentiles of single calls, or training steps. Rows go to
// the printer as they come; the functions return the number of wrong elements on all ranks.
#pragma once

#include <cstddef>

#include "bench/kolo_bench/library.h"
#include "bench/kolo_bench/report.h"

namespace kolo::bench {

std::size_t measure_sweep(const Options& options, Library& library, Printer& printer);
std::size_t measure_latency(const Options& options, Library& library, Printer& printer);
std::size_t measure_steps(const Options& options, Library& library, Printer& printer);

// Reads the options' mode, measures, prints a closing line; the program's exit code.
int run_rank(const Options& options, Library& library);

}  // namespace kolo::bench
