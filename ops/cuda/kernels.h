// Kernels: kolo's own device code, by which one launch moves a batch of tensors into a buffer and
// back, with a change of type and a scale on the way, and counts what is not finite. The code lies
// in the library itself, where nvcc was found when kolo was built.
//
// Does not change after load(): any threads. The Runtime outlives it. Only launches: never waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "base/types.h"
#include "ops/cuda/handles.h"
#include "ops/cuda/runtime.h"

namespace kolo::internal::cuda {

// One tensor and its place in the buffer.
struct PlacedTensor {
  void* memory = nullptr;
  std::size_t offset = 0;  // bytes from the buffer's beginning; a multiple of 16 is fastest
  std::size_t count = 0;   // elements
};

// Memory belongs to the device of the stream; the launch's caller keeps it until the stream is past
// it. Nothing may overlap.
struct Batch {
  std::span<const PlacedTensor> tensors;  // only read by the call itself
  void* buffer = nullptr;
  DataType tensor_type = DataType::kFloat32;
  DataType buffer_type = DataType::kFloat32;  // the same, or both of f16, bf16, f32
  double scale = 1.0;                         // not 1: floating types (not fp8) only
  // [tensors] to which unpack and count add how many elements of each are not finite: memory that
  // the device reaches, at best the host's, as nothing is written of those that are finite. Null:
  // nothing is counted.
  unsigned long long* counters = nullptr;
};

// The code for devices that is part of this library; empty if there is none.
[[nodiscard]] std::span<const std::byte> embedded_kernels();
// Which architectures it is for, or why there is none; for people.
[[nodiscard]] std::string kernels_note();

class Kernels {
 public:
  // `device` is where they will run. UNSUPPORTED (none built, an older CUDA runtime or device).
  static Result<std::unique_ptr<const Kernels>> load(
      const Runtime& runtime, int device, std::span<const std::byte> code = embedded_kernels());

  // With the stream's device current. One launch for each 120 tensors.
  // buffer[offset...] = tensor * scale.
  [[nodiscard]] Status pack(StreamHandle stream, const Batch& batch) const;
  // tensor = buffer[offset...] * scale.
  [[nodiscard]] Status unpack(StreamHandle stream, const Batch& batch) const;
  // Adds to the counters what is not finite in the tensors, of tensor_type, where they lie; there
  // is no buffer. Types other than f16, bf16, f32 and f64 have nothing to be counted.
  [[nodiscard]] Status count(StreamHandle stream, const Batch& batch) const;

 private:
  using Library = Owned<LibraryHandle, &Functions::cudaLibraryUnload>;

  Kernels(const Runtime& runtime, Library library)
      : runtime_(runtime), library_(std::move(library)) {}
  Result<KernelHandle> find(const char* name) const;
  [[nodiscard]] Status launch(KernelHandle kernel, const char* name, StreamHandle stream,
                              const Batch& batch) const;

  const Runtime& runtime_;
  Library library_;
  KernelHandle pack_ = nullptr;
  KernelHandle unpack_ = nullptr;
  KernelHandle unpack_counted_ = nullptr;
  KernelHandle count_ = nullptr;
  std::uint64_t most_blocks_ = 1;
};

}  // namespace kolo::internal::cuda
