// The kernels of kernels.cuh. Compiled by nvcc where it is found, and embedded into the library as
// one file with the code of all architectures; found there by these names (kernels.cc).
#include "ops/cuda/kernels.cuh"

namespace kolo::internal::cuda {
namespace {

__device__ DevicePlace here() { return {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}; }

// One addition for each warp that has found any: few do, and the counters may lie in host memory.
struct WarpCounters {
  static constexpr bool kCounts = true;
  unsigned long long* counters;

  __device__ void add(unsigned tensor, std::uint32_t found) {
    if (!__any_sync(0xffffffffu, found != 0)) return;
    unsigned long long sum = found;
    for (unsigned distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_down_sync(0xffffffffu, sum, distance);
    }
    if (threadIdx.x % 32 == 0) atomicAdd(counters + tensor, sum);
  }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    kolo_pack(const __grid_constant__ BatchArguments batch) {
  pack_body(batch, here());
}

extern "C" __global__ void __launch_bounds__(kThreads)
    kolo_unpack(const __grid_constant__ BatchArguments batch) {
  unpack_body(batch, here());
}

extern "C" __global__ void __launch_bounds__(kThreads)
    kolo_unpack_counted(const __grid_constant__ BatchArguments batch) {
  WarpCounters counters{batch.counters};
  unpack_counted_body(batch, here(), counters);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    kolo_count(const __grid_constant__ BatchArguments batch) {
  WarpCounters counters{batch.counters};
  count_body(batch, here(), counters);
}

}  // namespace kolo::internal::cuda
