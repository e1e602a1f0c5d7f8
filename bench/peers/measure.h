// What a worker does: all-reduces of several sizes in timed batches, single calls for their
// latency, or nothing at all for the cost of idling. Results go as JSON lines to a file.
//
// How many calls a batch has and when to stop is rank 0's decision, spread with System::sum(), so a
// system whose calls take milliseconds is measured as long as one whose calls take microseconds.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "bench/common/text.h"
#include "bench/peers/system.h"

namespace kolo::bench {

struct Work {
  enum class Mode { kThroughput, kLatency, kIdle };
  Mode mode = Mode::kThroughput;
  std::vector<std::size_t> sizes;               // in bytes, multiples of 4
  std::chrono::milliseconds budget{500};        // for each size
  std::chrono::milliseconds idle_time{10'000};  // for kIdle
  std::string out;                              // rank 0's results; with kIdle, .RANK is appended
  std::string meeting;                          // a folder in which the ranks may meet
  int rank = 0;                                 // for systems whose launcher does not tell
  int size = 1;
};

// Reads a worker's arguments; ends the program with a message if they are wrong.
Work parse_work(int argc, char** argv);

void run(const Work& work, System& system);

}  // namespace kolo::bench
