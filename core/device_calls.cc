#include "core/device_calls.h"

#include <cstdint>
#include <utility>

#include "core/process_sets.h"

namespace kolo::internal {
namespace {

using Tensor = OrderedOperation::Tensor;

TensorBuffers& buffers_of(const Tensor& tensor) { return tensor.request->buffers[tensor.index]; }

}  // namespace

std::int32_t own_device(const OrderedOperation& ordered) {
  return buffers_of(ordered.tensors.front()).device;
}

void fill(cuda::StagedCall& call, OrderedOperation& ordered, bool whole) {
  const Tensor& first = ordered.tensors.front();
  const TensorSpec& spec = first.spec();
  // Broadcasts of several data types go together, as bytes.
  const bool as_bytes = spec.kind == OpKind::kBroadcast;
  call.kind = spec.kind;
  call.reduction = {as_bytes ? DataType::kUint8 : spec.dtype, spec.op,
                    first.request->set->size() - first.request->absent};
  call.device = own_device(ordered);
  call.root = spec.kind == OpKind::kBroadcast ? first.request->set->place_of(spec.root) : 0;
  call.whole = whole;
  call.tensors.clear();
  call.make_output = nullptr;
  for (const Tensor& tensor : ordered.tensors) {
    TensorBuffers& buffers = buffers_of(tensor);
    const std::size_t unit = as_bytes ? element_bytes(tensor.spec().dtype) : 1;
    const Extents<std::size_t> elements = elements_of(*tensor.request, tensor.index);
    // Of what is in host memory the count comes later.
    const bool counts = buffers.nonfinite != nullptr && buffers.device != kHostMemory;
    std::int64_t* const found = counts ? &buffers.found : nullptr;
    const bool gives = spec.kind != OpKind::kBroadcast || call.root == tensor.request->set->place;
    call.tensors.push_back({gives ? buffers.input : nullptr, buffers.output, elements.input * unit,
                            elements.output * unit, tensor.spec().prescale, tensor.spec().postscale,
                            std::exchange(buffers.ready, {}), found, tensor.spec().dtype});
  }
  call.send_counts.clear();
  call.receive_counts.clear();
  if (spec.kind == OpKind::kAlltoall) {
    put_exchange(*first.request, first.index, 1, call.send_counts, call.receive_counts);
  } else if (spec.kind == OpKind::kReduceScatter || spec.kind == OpKind::kAllgather) {
    put_blocks(*first.request, first.index, 1, call.send_counts);
  }
}

void fill(nccl::Collective& collective, OrderedOperation& ordered) {
  const Tensor& first = ordered.tensors.front();
  const TensorSpec& spec = first.spec();
  const bool as_bytes = spec.kind == OpKind::kBroadcast;
  collective.kind = spec.kind;
  collective.dtype = as_bytes ? DataType::kUint8 : spec.dtype;
  collective.op = spec.op;
  collective.root = as_bytes ? first.request->set->place_of(spec.root) : 0;
  collective.size = first.request->set->size();
  collective.place = first.request->set->place;
  collective.tensors.clear();
  for (const Tensor& tensor : ordered.tensors) {
    TensorBuffers& buffers = buffers_of(tensor);
    const std::size_t unit = as_bytes ? element_bytes(tensor.spec().dtype) : 1;
    collective.tensors.push_back(
        {buffers.input, buffers.output, tensor.spec().count * unit, tensor.spec().prescale,
         tensor.spec().postscale, std::exchange(buffers.ready, {}), buffers.nonfinite != nullptr,
         elements_of(*tensor.request, tensor.index).output, tensor.spec().dtype});
  }
  collective.counts.clear();
  collective.receive_counts.clear();
  if (given_counts(*first.request, first.index).empty()) return;  // all blocks are alike
  if (spec.kind == OpKind::kAlltoall) {
    put_exchange(*first.request, first.index, 1, collective.counts, collective.receive_counts);
  } else if (spec.kind == OpKind::kReduceScatter || spec.kind == OpKind::kAllgather) {
    put_blocks(*first.request, first.index, 1, collective.counts);
  }
}

}  // namespace kolo::internal
