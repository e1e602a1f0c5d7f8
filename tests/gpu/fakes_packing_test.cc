// Which tensors of a fused operation are packed, told by the number of NCCL's calls: those of at
// most pack_tensor_bytes. The results are the same.
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/gpu/fakes.h"

namespace gpu_test {
namespace {

constexpr int kRanks = 2;
constexpr std::size_t kSmall = 100;  // elements, of the first four tensors
constexpr std::size_t kLarge = 1000;
constexpr std::size_t kTensors = 8;

struct Calls {
  long reductions = 0;  // of all ranks, for one group
  long kernels = 0;
};

// A group of four small tensors and four large ones, twice.
Calls calls_with(const char* limit) {
  ::setenv("KOLO_PACK_TENSOR_BYTES", limit, 1);
  Calls calls;
  on_ranks(kRanks, [&](kolo::Context& context) {
    const Stream stream(context.rank());
    for (int round = 0; round < 2; ++round) {
      std::vector<DeviceArray<float>> tensors;
      for (std::size_t i = 0; i < kTensors; ++i) {
        tensors.emplace_back(context.rank(),
                             std::vector<float>(i < 4 ? kSmall : kLarge, static_cast<float>(i)));
      }
      context.barrier();
      const long reductions = fakes().calls("ncclAllReduce");
      const long kernels = fakes().calls("cudaLaunchKernel");
      context.barrier();
      must(kolo_group_begin(context.handle(), "G"));
      for (std::size_t i = 0; i < kTensors; ++i) {
        must(sum(context, "t" + std::to_string(i), tensors[i], stream.get(), nullptr));
      }
      kolo_request request = KOLO_REQUEST_NULL;
      must(kolo_group_end(context.handle(), &request));
      must(kolo_wait(context.handle(), &request, KOLO_FOREVER));
      for (std::size_t i = 0; i < kTensors; ++i) {
        EXPECT_EQ(tensors[i].read(stream.get()),
                  std::vector<float>(tensors[i].count(), static_cast<float>(kRanks * i)))
            << "limit " << limit << ", tensor " << i;
      }
      context.barrier();
      if (context.rank() == 0) {
        calls = {fakes().calls("ncclAllReduce") - reductions,
                 fakes().calls("cudaLaunchKernel") - kernels};
      }
      context.barrier();
    }
  });
  ::unsetenv("KOLO_PACK_TENSOR_BYTES");
  return calls;
}

TEST(Packing, OfTensorsUpToALimit) {
  if (!has_kernels()) GTEST_SKIP() << "kolo's kernels do not run here: nothing is packed";
  const Calls all = calls_with("4000");
  EXPECT_EQ(all.reductions, kRanks) << "one call for all eight";
  EXPECT_EQ(all.kernels, kRanks * 2) << "one packs, one unpacks";
  const Calls some = calls_with("3999");
  EXPECT_EQ(some.reductions, kRanks * 5) << "one for the small, four for the large ones";
  EXPECT_EQ(some.kernels, kRanks * 2);
  const Calls none = calls_with("399");
  EXPECT_EQ(none.reductions, kRanks * 8);
  EXPECT_EQ(none.kernels, 0);
  EXPECT_EQ(calls_with("0").reductions, kRanks * 8);
}

}  // namespace
}  // namespace gpu_test
