#include "core/operation_starter.h"

#include "base/check.h"
#include "core/process_sets.h"

namespace kolo::internal {
namespace {

using Tensor = OrderedOperation::Tensor;

Reduction reduction_of(const Tensor& tensor) {
  const TensorSpec& spec = tensor.spec();
  return {spec.dtype, spec.op, tensor.request->set->size() - tensor.request->absent};
}

Piece piece_of(const Tensor& tensor, std::size_t count) {
  const TensorSpec& spec = tensor.spec();
  const TensorBuffers& buffers = tensor.buffers();
  return {buffers.input, buffers.output, count, spec.prescale, spec.postscale};
}

}  // namespace

Operation& OperationStarter::start(Collectives& collectives, std::uint32_t sequence,
                                   const OrderedOperation& ordered) {
  const Tensor& tensor = ordered.tensors.front();
  const TensorSpec& spec = tensor.spec();
  const TensorBuffers& buffers = tensor.buffers();
  switch (spec.kind) {
    case OpKind::kAllreduce: return start_allreduce(collectives, sequence, ordered);
    case OpKind::kReduceScatter: {
      put_blocks(*tensor.request, tensor.index, 1, sizes_);
      const std::size_t all = elements_of(*tensor.request, tensor.index).input;
      return collectives.start_reduce_scatter(sequence, piece_of(tensor, all), sizes_,
                                              reduction_of(tensor));
    }
    case OpKind::kAllgather:
      put_blocks(*tensor.request, tensor.index, element_bytes(spec.dtype), sizes_);
      return collectives.start_allgather(sequence, buffers.input, buffers.output, sizes_);
    case OpKind::kAlltoall: return start_alltoall(collectives, sequence, tensor);
    case OpKind::kBroadcast: return start_broadcast(collectives, sequence, ordered);
    case OpKind::kBarrier: return collectives.start_barrier(sequence);
    case OpKind::kCreateSet:
    case OpKind::kDestroySet: break;
  }
  KOLO_CHECK(false);
}

Operation& OperationStarter::start_allreduce(Collectives& collectives, std::uint32_t sequence,
                                             const OrderedOperation& ordered) {
  const Tensor& first = ordered.tensors.front();
  const Reduction reduction = reduction_of(first);
  if (reduction.op == ReduceOp::kAdasum) {
    adasum_.start(collectives, sequence, piece_of(first, first.spec().count), reduction.dtype);
    return adasum_;
  }
  pieces_.clear();
  for (const Tensor& tensor : ordered.tensors) {
    pieces_.push_back(piece_of(tensor, tensor.spec().count));
  }
  return collectives.start_allreduce(sequence, pieces_, reduction);
}

Operation& OperationStarter::start_broadcast(Collectives& collectives, std::uint32_t sequence,
                                             const OrderedOperation& ordered) {
  broadcasts_.clear();
  for (const Tensor& tensor : ordered.tensors) {
    const TensorSpec& spec = tensor.spec();
    broadcasts_.push_back(
        {tensor.buffers().input, tensor.buffers().output, spec.count * element_bytes(spec.dtype)});
  }
  const Tensor& first = ordered.tensors.front();
  return collectives.start_broadcast(sequence, first.request->set->place_of(first.spec().root),
                                     broadcasts_);
}

Operation& OperationStarter::start_alltoall(Collectives& collectives, std::uint32_t sequence,
                                            const Tensor& tensor) {
  put_exchange(*tensor.request, tensor.index, element_bytes(tensor.spec().dtype), sizes_,
               receive_sizes_);
  return collectives.start_alltoall(sequence, tensor.buffers().input, tensor.buffers().output,
                                    sizes_, receive_sizes_);
}

}  // namespace kolo::internal
