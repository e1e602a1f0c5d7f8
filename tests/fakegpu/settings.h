// What the environment asks of the fake libraries (the variables are explained in fakegpu.h).
// A plain value, read once when the machine is made.
#pragma once

#include <cstddef>
#include <string>

namespace fakegpu {

struct Settings {
  bool has_driver = true;
  int devices = 2;
  int device_offset = 0;
  bool same_gpu = false;
  std::size_t memory_bytes = std::size_t{1} << 30;
  int runtime_version = 13000;
  int nccl_version = 22809;
  bool dead_rank_is_error = false;
  bool census_at_exit = false;
  std::string faults;

  static Settings from_environment();
};

}  // namespace fakegpu
