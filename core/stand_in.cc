#include "core/stand_in.h"

#include "core/operation_starter.h"
#include "core/process_sets.h"
#include "ops/neutral.h"

namespace kolo::internal {
namespace {

std::byte* memory_of(RequestState& request, std::size_t elements, DataType dtype) {
  const std::size_t bytes = std::max<std::size_t>(1, elements * element_bytes(dtype));
  request.memory.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  return request.memory.back().get();
}

}  // namespace

void give_neutral_buffers(RequestState& request) {
  for (std::size_t i = 0; i < request.unit->tensors.size(); ++i) {
    const TensorSpec& spec = request.unit->tensors[i];
    const Extents<std::size_t> elements = elements_of(request, i);
    std::byte* const input = memory_of(request, elements.input, spec.dtype);
    const bool reduces = spec.kind == OpKind::kAllreduce || spec.kind == OpKind::kReduceScatter;
    if (reduces) fill_neutral(spec.dtype, spec.op, spec.prescale, input, elements.input);
    const bool in_place = spec.kind == OpKind::kAllreduce || spec.kind == OpKind::kBroadcast;
    std::byte* const output = in_place ? input : memory_of(request, elements.output, spec.dtype);
    TensorBuffers& buffers = request.buffers.emplace_back();
    buffers.input = input;
    buffers.output = output;
  }
}

void give_output(RequestState& request) {
  const TensorSpec& spec = request.unit->tensors.front();
  request.output_count = elements_of(request, 0).output;
  request.memory.clear();
  TensorBuffers& buffers = request.buffers.front();
  const bool on_device = buffers.device != kHostMemory;
  buffers.output = on_device ? nullptr : memory_of(request, request.output_count, spec.dtype);
  const std::vector<std::uint64_t>& all = request.counts.front();
  const auto size = static_cast<std::size_t>(request.set->size());
  const auto place = static_cast<std::size_t>(request.set->place);
  const bool by_row = spec.kind == OpKind::kAlltoall;
  request.output_counts.clear();
  for (std::size_t from = 0; from < size; ++from) {
    request.output_counts.push_back(by_row ? all[from * size + place] : all[from]);
  }
}

Status give_device_output(Gpus& gpus, RequestState& request) {
  TensorBuffers& buffers = request.buffers.front();
  const DataType dtype = request.unit->tensors.front().dtype;
  const Result<void*> memory =
      gpus.allocate_result(buffers.device, request.output_count * element_bytes(dtype));
  if (!memory) {
    return {memory.status().code(),
            "no memory for its output of " + std::to_string(request.output_count) +
                " elements of " + std::string(data_type_name(dtype)) + " on device " +
                std::to_string(buffers.device) + " of this rank (" + memory.status().text() +
                "). Give the right counts, or gather less at once"};
  }
  buffers.output = *memory;
  request.device_memory = {*memory, [&gpus](void* given) { gpus.discard(given); }};
  return Status::ok();
}

}  // namespace kolo::internal
