// The GPU of a test: the real one, or the fake's, whichever KOLO_CUDART_PATH and the system give;
// and memory and streams of it. The same tests run on both.
//
// Threads: any. What fails is a failure of the test that runs.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/cuda/runtime.h"

namespace gpu_test {

namespace cuda = kolo::internal::cuda;

// The runtime; null where there is no device, and then why not is in `why`.
const cuda::Runtime* runtime(std::string* why = nullptr);
int device_count();

// Whether kolo's kernels run here: built in, on a runtime and a device that take them.
bool has_kernels();

inline void check(cuda::Error error, const char* what) {
  EXPECT_EQ(error, cuda::kSuccess) << what << ": " << runtime()->cudaGetErrorString(error);
}

// Ends the test, visibly, where there is no device.
#define GPU_OR_SKIP()                                                                      \
  do {                                                                                     \
    std::string kolo_why_;                                                                 \
    if (gpu_test::runtime(&kolo_why_) == nullptr) GTEST_SKIP() << "no GPU: " << kolo_why_; \
  } while (false)

class Stream {
 public:
  explicit Stream(int device) {
    check(runtime()->cudaSetDevice(device), "cudaSetDevice");
    check(runtime()->cudaStreamCreateWithPriority(&handle_, cuda::kStreamNonBlocking, 0),
          "cudaStreamCreateWithPriority");
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { check(runtime()->cudaStreamDestroy(handle_), "cudaStreamDestroy"); }

  [[nodiscard]] cuda::StreamHandle get() const { return handle_; }
  void synchronize() const { check(runtime()->cudaStreamSynchronize(handle_), "synchronize"); }

 private:
  cuda::StreamHandle handle_ = nullptr;
};

// [count] elements of T in the memory of a device.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(int device, std::size_t count) : count_(count) {
    check(runtime()->cudaSetDevice(device), "cudaSetDevice");
    void* memory = nullptr;
    check(runtime()->cudaMalloc(&memory, std::max<std::size_t>(count * sizeof(T), 1)),
          "cudaMalloc");
    memory_ = static_cast<T*>(memory);
  }
  DeviceArray(int device, const std::vector<T>& values) : DeviceArray(device, values.size()) {
    put(values, nullptr);
    check(runtime()->cudaStreamSynchronize(nullptr), "synchronize");
  }
  DeviceArray(DeviceArray&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), count_(other.count_) {}
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() {
    if (memory_ != nullptr) check(runtime()->cudaFree(memory_), "cudaFree");
  }

  [[nodiscard]] T* get() const { return memory_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  // Queues a copy from `values`, which must live until the stream has done it.
  void put(const std::vector<T>& values, cuda::StreamHandle stream) {
    check(runtime()->cudaMemcpyAsync(memory_, values.data(), count_ * sizeof(T),
                                     cuda::kCopyHostToDevice, stream),
          "cudaMemcpyAsync");
  }
  // After what is queued on `stream`.
  [[nodiscard]] std::vector<T> read(cuda::StreamHandle stream = nullptr) const {
    std::vector<T> values(count_);
    check(runtime()->cudaMemcpyAsync(values.data(), memory_, count_ * sizeof(T),
                                     cuda::kCopyDeviceToHost, stream),
          "cudaMemcpyAsync");
    check(runtime()->cudaStreamSynchronize(stream), "synchronize");
    return values;
  }

 private:
  T* memory_ = nullptr;
  std::size_t count_;
};

}  // namespace gpu_test
