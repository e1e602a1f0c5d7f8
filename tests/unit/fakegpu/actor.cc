// A small program that plays one part with the fake GPU libraries, for cases that need a process of
// their own: `fakegpu_actor PART`. The exit code says how it went.
#include <cstdio>
#include <cstring>

#include "tests/fakegpu/fakegpu.h"
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
  return count == 2 ? kolo::internal::cuda::run(arguments[1]) : 2;
}
