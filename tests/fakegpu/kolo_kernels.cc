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

struct Counters {
  static constexpr bool kCounts = true;
  unsigned long long* counters;
  void add(unsigned tensor, std::uint32_t found) const { counters[tensor] += found; }
};

void open_buffer(Access& access, BatchArguments& batch) {
  const std::size_t bytes = element_bytes(static_cast<DataType>(batch.buffer_type));
  std::uint64_t begin = batch.tensors[0].offset;
  std::uint64_t end = begin;
  for (std::uint32_t i = 0; i < batch.tensor_count; ++i) {
    const BatchTensor& tensor = batch.tensors[i];
    begin = std::min(begin, tensor.offset);
    end = std::max(end, tensor.offset + tensor.count * bytes);
  }
  for (std::uint32_t i = 0; i < batch.tensor_count; ++i) batch.tensors[i].offset -= begin;
  batch.buffer = access.open(batch.buffer + begin, end - begin);
}

// From the program's addresses to those behind them; false if one is outside of its buffer.
bool open_all(Access& access, BatchArguments& batch) {
  const std::size_t bytes = element_bytes(static_cast<DataType>(batch.tensor_type));
  for (std::uint32_t i = 0; i < batch.tensor_count; ++i) {
    BatchTensor& tensor = batch.tensors[i];
    if (tensor.count > 0) tensor.memory = access.open(tensor.memory, tensor.count * bytes);
  }
  if (batch.buffer != nullptr) open_buffer(access, batch);
  if (batch.counters != nullptr) {
    batch.counters = access.open_array(batch.counters, batch.tensor_count);
  }
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
    kolo::internal::cuda::unpack_body(batch, place);
  });
}

std::function<void(Access&)> bind_kolo_unpack_counted(const LaunchShape& shape, void** arguments) {
  return bind(shape, arguments, [](const BatchArguments& batch, DevicePlace place) {
    Counters counters{batch.counters};
    kolo::internal::cuda::unpack_counted_body(batch, place, counters);
  });
}

std::function<void(Access&)> bind_kolo_count(const LaunchShape& shape, void** arguments) {
  return bind(shape, arguments, [](const BatchArguments& batch, DevicePlace place) {
    Counters counters{batch.counters};
    kolo::internal::cuda::count_body(batch, place, counters);
  });
}

}  // namespace fakegpu
