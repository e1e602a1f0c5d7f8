// The options of allreduce_peers.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "bench/peers/measure.h"

namespace kolo::bench {

struct Settings {
  Work::Mode mode = Work::Mode::kThroughput;
  int ranks = 2;
  int rounds = 7;
  std::vector<std::size_t> sizes;  // in bytes
  std::vector<std::string> peers = {"kolo", "gloo", "mpich"};
  bool peers_named = false;  // then a missing one is an error
  std::chrono::milliseconds budget{500};
  std::chrono::milliseconds idle_time{10'000};
  std::string json;  // a file to append to; empty: none
};

// Ends the program with a message if the arguments are wrong, or after --help.
Settings parse_settings(int argc, char** argv);

}  // namespace kolo::bench
