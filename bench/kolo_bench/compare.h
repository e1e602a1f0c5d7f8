// The driver of --peer: jobs of kolo and of the peer in turn, then medians and their ratio.
#pragma once

#include "bench/kolo_bench/options.h"

namespace kolo::bench {

// The program's exit code. Ends the program if a job fails.
int compare(const Options& options);

}  // namespace kolo::bench
