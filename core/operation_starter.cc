#include "core/operation_starter.h"

#include <numeric>

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

// The numbers of all ranks, if they have their own.
std::span<const std::uint64_t> personal(const RequestState& request, std::size_t index) {
  if (request.counts.empty()) return {};
  return request.counts[index];
}

std::size_t sum_of(std::span<const std::uint64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace

Extents<std::size_t> elements_of(const RequestState& request, std::size_t index) {
  const TensorSpec& spec = request.unit->tensors[index];
  const auto size = static_cast<std::size_t>(request.set->size());
  const auto place = static_cast<std::size_t>(request.set->place);
  const std::span<const std::uint64_t> own = personal(request, index);
  const std::span<const std::uint64_t> counts = own.empty() ? spec.counts : own;
  const std::size_t count = spec.count;
  if (counts.empty()) return extents_of(spec.kind, count, count * size, count * size);
  if (spec.kind != OpKind::kAlltoall) {
    const std::size_t all = sum_of(counts);
    return extents_of(spec.kind, std::size_t{counts[place]}, all, all);
  }
  std::size_t received = 0;
  for (std::size_t from = 0; from < size; ++from) received += counts[from * size + place];
  return extents_of(spec.kind, count, sum_of(counts.subspan(place * size, size)), received);
}

// By rank, times `element`; the ranks' own numbers, those that they share, or the same for all.
std::span<const std::size_t> OperationStarter::sizes_of(const Tensor& tensor, std::size_t element) {
  const TensorSpec& spec = tensor.spec();
  const std::span<const std::uint64_t> own = personal(*tensor.request, tensor.index);
  const std::span<const std::uint64_t> counts = own.empty() ? spec.counts : own;
  sizes_.assign(static_cast<std::size_t>(tensor.request->set->size()), spec.count * element);
  for (std::size_t i = 0; i < counts.size(); ++i) sizes_[i] = counts[i] * element;
  return sizes_;
}

Operation& OperationStarter::start(Collectives& collectives, std::uint32_t sequence,
                                   const OrderedOperation& ordered) {
  const Tensor& tensor = ordered.tensors.front();
  const TensorSpec& spec = tensor.spec();
  const TensorBuffers& buffers = tensor.buffers();
  switch (spec.kind) {
    case OpKind::kAllreduce: return start_allreduce(collectives, sequence, ordered);
    case OpKind::kReduceScatter: {
      const auto counts = sizes_of(tensor, 1);
      const std::size_t all = elements_of(*tensor.request, tensor.index).input;
      return collectives.start_reduce_scatter(sequence, piece_of(tensor, all), counts,
                                              reduction_of(tensor));
    }
    case OpKind::kAllgather:
      return collectives.start_allgather(sequence, buffers.input, buffers.output,
                                         sizes_of(tensor, element_bytes(spec.dtype)));
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
  const std::size_t element = element_bytes(tensor.spec().dtype);
  const auto size = static_cast<std::size_t>(tensor.request->set->size());
  const auto place = static_cast<std::size_t>(tensor.request->set->place);
  const std::span<const std::uint64_t> all = personal(*tensor.request, tensor.index);
  sizes_.assign(size, tensor.spec().count * element);
  receive_sizes_ = sizes_;
  for (std::size_t i = 0; i < size && !all.empty(); ++i) {
    sizes_[i] = all[place * size + i] * element;
    receive_sizes_[i] = all[i * size + place] * element;
  }
  return collectives.start_alltoall(sequence, tensor.buffers().input, tensor.buffers().output,
                                    sizes_, receive_sizes_);
}

}  // namespace kolo::internal
