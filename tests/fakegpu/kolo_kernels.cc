#include "tests/fakegpu/kolo_kernels.h"

#include <algorithm>
#include <cstring>

#include "base/types.h"
#include "ops/cuda/kernels.cuh"

namespace fakegpu {
namespace {

using kolo::internal::DataType;
using kolo::internal::element_bytes;
using kolo::internal::cuda::BatchArguments;
using kolo::internal::cuda::BatchTensor;
using kolo::internal::cuda::DevicePlace;

// From the program's addresses to those behind them; false if one is outside of its buffer.
bool open_all(Access& access, BatchArguments& batch) {
  const std::size_t tensor_bytes = element_bytes(static_cast<DataType>(batch.tensor_type));
  const std::size_t buffer_bytes = element_bytes(static_cast<DataType>(batch.buffer_type));
  std::uint64_t begin = batch.tensors[0].offset;
  std::uint64_t end = begin;
  for (std::uint32_t i = 0; i < batch.tensor_count; ++i) {
    BatchTensor& tensor = batch.tensors[i];
    tensor.memory = access.open(tensor.memory, tensor.count * tensor_bytes);
    begin = std::min(begin, tensor.offset);
    end = std::max(end, tensor.offset + tensor.count * buffer_bytes);
  }
  for (std::uint32_t i = 0; i < batch.tensor_count; ++i) batch.tensors[i].offset -= begin;
  batch.buffer = access.open(batch.buffer + begin, end - begin);
  if (batch.nonfinite != nullptr) batch.nonfinite = access.open_array(batch.nonfinite, 1);
  return !access.failed();
}

template <typename Body>
std::function<void(Access&)> bind(const LaunchShape& shape, void** arguments, Body body) {
  BatchArguments batch;
  std::memcpy(&batch, arguments[0], sizeof batch);
  return [shape, batch, body](Access& access) mutable {
    if (!open_all(access, batch)) return;
    for (unsigned block = 0; block < shape.grid.x; ++block) {
      for (unsigned thread = 0; thread < shape.block.x; ++thread) {
        body(batch, DevicePlace{block, shape.grid.x, thread, shape.block.x});
      }
    }
  };
}

}  // namespace

std::function<void(Access&)> bind_kolo_pack(const LaunchShape& shape, void** arguments) {
  return bind(shape, arguments, [](const BatchArguments& batch, DevicePlace place) {
    kolo::internal::cuda::pack_body(batch, place);
  });
}

std::function<void(Access&)> bind_kolo_unpack(const LaunchShape& shape, void** arguments) {
  return bind(shape, arguments, [](const BatchArguments& batch, DevicePlace place) {
    const std::uint64_t found = kolo::internal::cuda::unpack_body(batch, place);
    if (batch.nonfinite != nullptr) *batch.nonfinite += found;
  });
}

}  // namespace fakegpu
