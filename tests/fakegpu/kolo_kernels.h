// kolo's own kernels on the fake device: the bodies of ops/cuda/kernels.cuh, thread by thread.
#pragma once

#include <functional>

#include "tests/fakegpu/kernels.h"

namespace fakegpu {

std::function<void(Access&)> bind_kolo_pack(const LaunchShape& shape, void** arguments);
std::function<void(Access&)> bind_kolo_unpack(const LaunchShape& shape, void** arguments);
std::function<void(Access&)> bind_kolo_unpack_counted(const LaunchShape& shape, void** arguments);
std::function<void(Access&)> bind_kolo_count(const LaunchShape& shape, void** arguments);

}  // namespace fakegpu
