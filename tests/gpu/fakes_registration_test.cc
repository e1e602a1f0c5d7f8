// Memory of kolo_alloc_device() is registered with NCCL where that was asked for, and only there:
// the fakes report ranks that mix registered memory and other, as NCCL leaves that undefined.
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/gpu/fakes.h"

namespace gpu_test {
namespace {

constexpr int kRanks = 2;

// Registrations of all ranks while operations use such memory, here and there in it.
long registrations(const char* option) {
  ::setenv("KOLO_REGISTER_MEMORY", option, 1);
  long found = 0;
  on_ranks(kRanks, [&](kolo::Context& context) {
    const int device = context.rank();
    void* memory = nullptr;
    must(kolo_alloc_device(context.handle(), device, 8192, &memory));
    check(runtime()->cudaSetDevice(device), "cudaSetDevice");
    check(runtime()->cudaMemsetAsync(memory, 0, 8192, nullptr), "memset");
    for (const std::size_t offset : {0, 4096}) {
      kolo_options options = KOLO_OPTIONS_INIT;
      const std::string name = "at " + std::to_string(offset);
      options.name = name.c_str();
      char* const at = static_cast<char*>(memory) + offset;
      must(
          kolo_allreduce(context.handle(), at, at, 100, KOLO_FLOAT32, KOLO_SUM, &options, nullptr));
      // In place, where each rank's block lies elsewhere.
      const std::string gathered = "gathered at " + std::to_string(offset);
      options.name = gathered.c_str();
      must(kolo_allgather(context.handle(), at + 400 * context.rank(), at, 100, KOLO_FLOAT32,
                          &options, nullptr));
    }
    context.barrier();
    if (context.rank() == 0) {
      fakegpu_counts counts{};
      fakes().census(&counts);
      found = counts.registrations;
    }
    context.barrier();
    must(kolo_free(context.handle(), memory));
  });
  ::unsetenv("KOLO_REGISTER_MEMORY");
  return found;
}

TEST(Registration, IsMadeWhereItWasAskedFor) {
  EXPECT_EQ(registrations("0"), 0);
  EXPECT_EQ(registrations("1"), kRanks);
  EXPECT_EQ(fakes().misuses(), 0);
}

}  // namespace
}  // namespace gpu_test
