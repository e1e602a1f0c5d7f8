// What is said of operations on devices that do not end. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace kolo::internal {

struct DeviceStall {
  std::string unit;  // the first one, as "allreduce 'x'"
  int device = 0;
  bool is_launched = false;
  bool is_given_up = false;
  Nanos age{0};                // since it was handed to the launch thread
  std::size_t operations = 0;  // that are late, it included
};
[[nodiscard]] std::string stall_text(const DeviceStall& stall);

// With what an operation ends that is left behind in a library's call.
[[nodiscard]] Status left_behind(const Status& why, Nanos patience);

}  // namespace kolo::internal
