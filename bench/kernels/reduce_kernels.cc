// Reduction kernels alone, on one core: sums of N inputs, the portable variant and the best one.
// bytes_per_second counts what the kernel names: N inputs read, one output written. A tensor of
// 64 KiB stays in the second-level cache, one of 64 MiB does not. Rounds of
//   reduce_kernels_bench --benchmark_filter=f32
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "ops/mxcsr_guard.h"
#include "ops/reduce_kernels.h"
#include "ops/reduction_order.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kCached = std::size_t{64} << 10;
constexpr std::size_t kUncached = std::size_t{64} << 20;

// Inputs of zeros: the sums of every type take the same time whatever the values, but for
// subnormals.
void sum(benchmark::State& state, DataType dtype, KernelVariant variant, int inputs,
         std::size_t bytes) {
  const ReductionOrder order = ReductionOrder::single_host(inputs);
  std::vector<AlignedBytes> memory;
  std::vector<const std::byte*> places;
  for (int i = 0; i < inputs + 1; ++i) {
    memory.push_back(allocate_aligned(bytes));
    std::fill_n(memory.back().get(), bytes, std::byte{0});
    places.push_back(memory.back().get());
  }
  const AlignedBytes scratch = allocate_aligned(reduce_scratch_bytes(order.stack_depth()));
  ReduceCall call;
  call.steps = order.steps().data();
  call.step_count = order.steps().size();
  call.stack_depth = order.stack_depth();
  call.inputs = places.data();
  call.output = memory.back().get();
  call.count = bytes / element_bytes(dtype);
  call.scale.contributors = inputs;
  call.scratch = scratch.get();
  const ReduceKernel& kernel = reduce_kernel(dtype, ReduceOp::kSum, variant);
  const MxcsrGuard guard;
  for (auto _ : state) {
    kernel.reduce(call);
    benchmark::ClobberMemory();
  }
  const auto named = static_cast<std::int64_t>(bytes) * (inputs + 1);
  state.SetBytesProcessed(state.iterations() * named);
}

void register_all() {
  for (const DataType dtype :
       {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBfloat16}) {
    for (const KernelVariant variant : {KernelVariant::kPortable, KernelVariant::kAvx2}) {
      if (!kernel_variant_runs(variant)) continue;
      for (const int inputs : {2, 4, 8}) {
        for (const std::size_t bytes : {kCached, kUncached}) {
          const std::string name = "sum/" + std::string(data_type_name(dtype)) + "/" +
                                   (variant == KernelVariant::kPortable ? "portable" : "avx2") +
                                   "/inputs:" + std::to_string(inputs) +
                                   (bytes == kCached ? "/64KiB" : "/64MiB");
          benchmark::RegisterBenchmark(name.c_str(), sum, dtype, variant, inputs, bytes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kolo::internal

int main(int argc, char** argv) {
  kolo::internal::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
