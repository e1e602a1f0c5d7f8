#include "core/result_counter.h"

#include <algorithm>

#include "core/operation_starter.h"
#include "core/process_sets.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kElementsAtOnce = std::size_t{1} << 18;

}  // namespace

void ResultCounter::add(const RequestState& request, std::size_t index) {
  const TensorBuffers& buffers = request.buffers[index];
  if (buffers.participants != nullptr) {
    *buffers.participants = request.set->size() - request.absent;
  }
  if (buffers.nonfinite == nullptr) return;
  *buffers.nonfinite = buffers.device == kHostMemory ? 0 : buffers.found;
  if (buffers.device != kHostMemory) return;
  const TensorSpec& spec = request.unit->tensors[index];
  if (!is_floating(spec.dtype)) return;
  const std::size_t count = elements_of(request, index).output;
  if (count <= kElementsAtOnce) {
    *buffers.nonfinite =
        static_cast<std::int64_t>(count_nonfinite(spec.dtype, buffers.output, count));
    return;
  }
  outputs_.push_back(
      {spec.dtype, static_cast<const std::byte*>(buffers.output), count, buffers.nonfinite});
}

void ResultCounter::advance() {
  Output& output = outputs_.back();
  const std::size_t count = std::min(output.count, kElementsAtOnce);
  *output.nonfinite +=
      static_cast<std::int64_t>(count_nonfinite(output.dtype, output.memory, count));
  output.memory += count * element_bytes(output.dtype);
  output.count -= count;
  if (output.count == 0) outputs_.pop_back();
}

}  // namespace kolo::internal
