// A small program that plays one part with the fake GPU libraries, for cases that need a process of
// their own: `fakegpu_actor PART [...]`. The exit code says how it went.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/fakegpu/fakegpu.h"
#include "tests/fakegpu/nccl/nccl_abi.h"
#include "tests/fakegpu/runtime_abi.h"

namespace kolo::internal::cuda {
namespace {

int leak() {
  void* pointer = nullptr;
  EventHandle event = nullptr;
  return cudaMalloc(&pointer, 100) != 0 || cudaEventCreateWithFlags(&event, 0) != 0;
}

int clean() {
  void* pointer = nullptr;
  return cudaMalloc(&pointer, 100) != 0 || cudaFree(pointer) != 0;
}

int misuse() {
  EventHandle event = nullptr;
  cudaEventCreateWithFlags(&event, 0);
  cudaEventDestroy(event);
  cudaEventDestroy(event);
  return 0;
}

int read_device_memory() {
  void* pointer = nullptr;
  cudaMalloc(&pointer, 100);
  return *static_cast<volatile char*>(pointer);
}

// Prints what a program sees that looks for devices.
int look() {
  int count = -1;
  int runtime = -1;
  char bus[32] = "-";
  const int error = cudaGetDeviceCount(&count);
  cudaRuntimeGetVersion(&runtime);
  if (count > 0) cudaDeviceGetPCIBusId(bus, sizeof bus, count - 1);
  std::printf("error %d, devices %d, runtime %d, last bus id %s\n", error, count, runtime, bus);
  return 0;
}

// Rank `rank` of `size` in a communicator with this id (in hexadecimal digits), on device 0: one
// all-reduce of 100,000 numbers. The exit code is 0 when the sums are right; else NCCL's error,
// that of the communicator included, plus 10.
int all_reduce(const char* id_text, int size, int rank) {
  nccl::UniqueId id;
  for (std::size_t i = 0; i < nccl::kUniqueIdBytes; ++i) {
    unsigned byte = 0;
    if (std::sscanf(id_text + 2 * i, "%2x", &byte) != 1) return 2;
    id.bytes[i] = static_cast<char>(byte);
  }
  constexpr std::size_t kCount = 100000;
  nccl::CommHandle comm = nullptr;
  if (const int error = nccl::ncclCommInitRank(&comm, size, id, rank)) return 10 + error;
  void* data = nullptr;
  cudaMalloc(&data, kCount * sizeof(float));
  std::vector<float> values(kCount, static_cast<float>(rank + 1));
  cudaMemcpy(data, values.data(), kCount * sizeof(float), kCopyHostToDevice);
  nccl::ncclAllReduce(data, data, kCount, nccl::kFloat32, nccl::kSum, comm, nullptr);
  int error = 0;
  while (cudaStreamQuery(nullptr) == kNotReady && error == 0) {
    nccl::ncclCommGetAsyncError(comm, &error);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  error == 0 ? nccl::ncclCommDestroy(comm) : nccl::ncclCommAbort(comm);
  if (error != 0) return cudaFree(data) != 0 ? 1 : 10 + error;
  cudaMemcpy(values.data(), data, kCount * sizeof(float), kCopyDeviceToHost);
  cudaFree(data);
  const auto sum = static_cast<float>(size * (size + 1) / 2);
  return values == std::vector<float>(kCount, sum) ? 0 : 1;
}

int run(const char* part) {
  if (std::strcmp(part, "leak") == 0) return leak();
  if (std::strcmp(part, "clean") == 0) return clean();
  if (std::strcmp(part, "misuse") == 0) return misuse();
  if (std::strcmp(part, "read") == 0) return read_device_memory();
  if (std::strcmp(part, "look") == 0) return look();
  return 2;
}

}  // namespace
}  // namespace kolo::internal::cuda

int main(int count, char** arguments) {
  if (count == 5 && std::strcmp(arguments[1], "all-reduce") == 0) {
    return kolo::internal::cuda::all_reduce(arguments[2], std::atoi(arguments[3]),
                                            std::atoi(arguments[4]));
  }
  return count == 2 ? kolo::internal::cuda::run(arguments[1]) : 2;
}
