// The options of kolo-bench and of its peer's program, which take the same command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/kolo_bench/gradients.h"
#include "bench/kolo_bench/words.h"

namespace kolo::bench {

enum class Mode { kSweep, kLatency, kSteps };
enum class Memory { kMalloc, kKolo };

struct Options {
  Mode mode = Mode::kSweep;
  Collective collective = Collective::kAllreduce;
  std::vector<std::size_t> sizes;  // in bytes
  std::vector<kolo_dtype> dtypes;
  std::vector<kolo_op> ops;  // of what reduces
  int iterations = 0;
  int warmups = 0;
  int checks = 1;
  int root = 0;
  Memory memory = Memory::kMalloc;
  bool refill = false;
  bool counters = false;
  bool spoil = false;  // for tests: damages one result before it is checked
  std::string json;    // a file to append to; empty: none

  std::string gradients;  // the set's name; empty unless kSteps
  std::vector<Tensor> tensors;
  bool shuffle = true;
  bool persistent = false;
  std::optional<std::uint64_t> seed;  // nothing: one of rank 0's choice

  // As the driver of jobs that alternate between kolo and a peer.
  std::string peer;  // empty: this is a rank
  int ranks = 2;
  int rounds = 5;
  bool peer_over_tcp = false;
  std::vector<std::string> worker_words;  // the command line without the driver's own options
};

// Ends the program after --help, or with a usage error if the arguments are wrong.
Options parse_options(int argc, char** argv);

}  // namespace kolo::bench
