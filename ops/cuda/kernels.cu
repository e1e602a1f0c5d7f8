// The kernels of kernels.cuh. Compiled by nvcc where it is found, and embedded into the library as
// one file with the code of all architectures; found there by these names (kernels.cc).
#include "ops/cuda/kernels.cuh"

namespace kolo::internal::cuda {
namespace {

__device__ DevicePlace here() { return {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}; }

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    kolo_pack(const __grid_constant__ BatchArguments batch) {
  pack_body(batch, here());
}

extern "C" __global__ void __launch_bounds__(kThreads)
    kolo_unpack(const __grid_constant__ BatchArguments batch) {
  unsigned long long found = unpack_body(batch, here());
  if (batch.nonfinite == nullptr) return;
  // Few blocks find any: one addition for each warp that does.
  for (unsigned distance = 16; distance > 0; distance /= 2) {
    found += __shfl_down_sync(0xffffffffu, found, distance);
  }
  if (threadIdx.x % 32 == 0 && found != 0) atomicAdd(batch.nonfinite, found);
}

}  // namespace kolo::internal::cuda
