#include "core/device_calls.h"

#include <cstdint>
#include <utility>

#include "core/process_sets.h"

namespace kolo::internal {
namespace {

using Tensor = OrderedOperation::Tensor;

TensorBuffers& buffers_of(const Tensor& tensor) { return tensor.request->buffers[tensor.index]; }

std::size_t size_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.request->set->size());
}

// The numbers that the ranks gave each for itself, or share; empty: none.
const auto& given_counts(const Tensor& tensor) {
  const auto& own = tensor.request->counts;
  return own.empty() ? tensor.spec().counts : own[tensor.index];
}

// What follows fills vectors that keep their memory from call to call.

void put_given(const Tensor& tensor, std::vector<std::size_t>& counts) {
  const auto& given = given_counts(tensor);
  counts.assign(given.begin(), given.end());
}

void put_given_or_even(const Tensor& tensor, std::vector<std::size_t>& counts) {
  put_given(tensor, counts);
  if (counts.empty()) counts.assign(size_of(tensor), tensor.spec().count);
}

// Of an all-to-all: the row of this rank, and its column.
void put_blocks(const Tensor& tensor, std::vector<std::size_t>& sent,
                std::vector<std::size_t>& received) {
  const std::size_t size = size_of(tensor);
  const auto place = static_cast<std::size_t>(tensor.request->set->place);
  const auto& all = given_counts(tensor);
  sent.assign(size, tensor.spec().count);
  received.assign(size, tensor.spec().count);
  if (all.empty()) return;
  for (std::size_t peer = 0; peer < size; ++peer) {
    sent[peer] = all[place * size + peer];
    received[peer] = all[peer * size + place];
  }
}

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
  for (const Tensor& tensor : ordered.tensors) {
    TensorBuffers& buffers = buffers_of(tensor);
    const std::size_t unit = as_bytes ? element_bytes(tensor.spec().dtype) : 1;
    const Extents<std::size_t> elements = elements_of(*tensor.request, tensor.index);
    const bool gives = spec.kind != OpKind::kBroadcast || call.root == tensor.request->set->place;
    call.tensors.push_back({gives ? buffers.input : nullptr, buffers.output, elements.input * unit,
                            elements.output * unit, tensor.spec().prescale, tensor.spec().postscale,
                            std::exchange(buffers.ready, {})});
  }
  call.send_counts.clear();
  call.receive_counts.clear();
  if (spec.kind == OpKind::kAlltoall) {
    put_blocks(first, call.send_counts, call.receive_counts);
  } else if (spec.kind == OpKind::kReduceScatter || spec.kind == OpKind::kAllgather) {
    put_given_or_even(first, call.send_counts);
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
    collective.tensors.push_back({buffers.input, buffers.output, tensor.spec().count * unit,
                                  tensor.spec().prescale, tensor.spec().postscale,
                                  std::exchange(buffers.ready, {})});
  }
  collective.counts.clear();
  collective.receive_counts.clear();
  if (spec.kind == OpKind::kAlltoall && !given_counts(first).empty()) {
    put_blocks(first, collective.counts, collective.receive_counts);
  } else if (spec.kind == OpKind::kReduceScatter || spec.kind == OpKind::kAllgather) {
    put_given(first, collective.counts);
  }
}

}  // namespace kolo::internal
