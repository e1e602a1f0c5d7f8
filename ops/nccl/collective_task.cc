#include "ops/nccl/collective_task.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "ops/half.h"

namespace kolo::internal::nccl {
namespace {

constexpr std::size_t kPlaceBytes = 16;  // between tensors in the fusion buffer

bool is_float8(DataType dtype) {
  return dtype == DataType::kFloat8E4m3 || dtype == DataType::kFloat8E5m2;
}

bool is_own(DataType dtype) {
  return dtype == DataType::kBool || dtype == DataType::kInt16 || dtype == DataType::kUint16;
}

// For people.
const char* name_of(OpKind kind) {
  switch (kind) {
    case OpKind::kAllreduce: return "ncclAllReduce";
    case OpKind::kReduceScatter: return "ncclReduceScatter, or ncclReduce of each block,";
    case OpKind::kAllgather: return "ncclAllGather, or ncclBroadcast of each block,";
    case OpKind::kAlltoall: return "ncclSend and ncclRecv of each block";
    case OpKind::kBroadcast: return "ncclBroadcast";
    default: return "a call of NCCL's";
  }
}

std::byte* at(void* memory, std::size_t bytes) {
  return memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + bytes;
}
const std::byte* at(const void* memory, std::size_t bytes) {
  return memory == nullptr ? nullptr : static_cast<const std::byte*>(memory) + bytes;
}

}  // namespace

const char* why_not(OpKind kind, DataType dtype, ReduceOp op, bool scaled) {
  const bool reduces = kind == OpKind::kAllreduce || kind == OpKind::kReduceScatter;
  if (!reduces) return nullptr;  // bytes are bytes
  if (op == ReduceOp::kAdasum) return "NCCL has no Adasum";
  if (is_own(dtype)) return "NCCL has no such data type";
  if (op == ReduceOp::kAvg && !is_floating(dtype))
    return "NCCL rounds integer averages its own way";
  if (scaled && op != ReduceOp::kSum) return "NCCL scales sums only";
  return nullptr;
}

// What NCCL has no name for is moved as bytes.
bool CollectiveTask::moves_bytes() const {
  const bool reduces =
      collective_.kind == OpKind::kAllreduce || collective_.kind == OpKind::kReduceScatter;
  return !reduces && (is_own(collective_.dtype) || is_float8(collective_.dtype));
}

DataTypeNumber CollectiveTask::dtype() const {
  return moves_bytes() ? kUint8 : static_cast<DataTypeNumber>(collective_.dtype);
}

std::size_t CollectiveTask::units(std::size_t elements) const {
  return moves_bytes() ? elements * element_bytes(collective_.dtype) : elements;
}

// Sums with a scale are one of NCCL's own operators: the product of both scales, before the sum.
Result<ReduceOpNumber> CollectiveTask::op_of(const DeviceTensor& tensor) {
  const double scale = tensor.prescale * tensor.postscale;
  if (scale == 1.0) return static_cast<ReduceOpNumber>(collective_.op);
  union {
    float f32;
    double f64;
    std::uint16_t half;
  } scalar{};
  switch (collective_.dtype) {
    case DataType::kFloat32: scalar.f32 = static_cast<float>(scale); break;
    case DataType::kFloat64: scalar.f64 = scale; break;
    case DataType::kFloat16: scalar.half = narrow_f16(static_cast<float>(scale)); break;
    case DataType::kBfloat16: scalar.half = narrow_bf16(static_cast<float>(scale)); break;
    default: KOLO_CHECK(false);
  }
  ReduceOpNumber made = kSum;
  const Error error = library_.ncclRedOpCreatePreMulSum(&made, &scalar, dtype(), kScalarOnHost,
                                                        communicator_->handle());
  KOLO_RETURN_IF_ERROR(communicator_->settle(error, "ncclRedOpCreatePreMulSum"));
  made_ops_.push_back(made);
  return made;
}

Error CollectiveTask::reduce_scatter(const DeviceTensor& tensor, cuda::StreamHandle stream) {
  const CommHandle comm = communicator_->handle();
  if (collective_.counts.empty()) {
    return library_.ncclReduceScatter(tensor.input, tensor.output, tensor.count, dtype(), op_, comm,
                                      stream);
  }
  const std::size_t element = element_bytes(collective_.dtype);
  std::size_t offset = 0;
  for (int place = 0; place < collective_.size; ++place) {
    const std::size_t count = collective_.counts[static_cast<std::size_t>(place)];
    const Error error = library_.ncclReduce(at(tensor.input, offset), tensor.output, count, dtype(),
                                            op_, place, comm, stream);
    if (error != kSuccess && error != kInProgress) return error;
    offset += count * element;
  }
  return kSuccess;
}

Error CollectiveTask::allgather(const DeviceTensor& tensor, cuda::StreamHandle stream) {
  const CommHandle comm = communicator_->handle();
  if (collective_.counts.empty()) {
    return library_.ncclAllGather(tensor.input, tensor.output, units(tensor.count), dtype(), comm,
                                  stream);
  }
  const std::size_t element = element_bytes(collective_.dtype);
  std::size_t offset = 0;
  for (int place = 0; place < collective_.size; ++place) {
    const std::size_t count = collective_.counts[static_cast<std::size_t>(place)];
    const Error error = library_.ncclBroadcast(tensor.input, at(tensor.output, offset),
                                               units(count), dtype(), place, comm, stream);
    if (error != kSuccess && error != kInProgress) return error;
    offset += count * element;
  }
  return kSuccess;
}

Error CollectiveTask::alltoall(const DeviceTensor& tensor, cuda::StreamHandle stream) {
  const CommHandle comm = communicator_->handle();
  const std::size_t element = element_bytes(collective_.dtype);
  std::size_t send_offset = 0;
  std::size_t receive_offset = 0;
  for (int peer = 0; peer < collective_.size; ++peer) {
    const auto place = static_cast<std::size_t>(peer);
    const bool even = collective_.counts.empty();
    const std::size_t sends = even ? tensor.count : collective_.counts[place];
    const std::size_t receives = even ? tensor.count : collective_.receive_counts[place];
    Error error =
        library_.ncclSend(at(tensor.input, send_offset), units(sends), dtype(), peer, comm, stream);
    if (error != kSuccess && error != kInProgress) return error;
    error = library_.ncclRecv(at(tensor.output, receive_offset), units(receives), dtype(), peer,
                              comm, stream);
    if (error != kSuccess && error != kInProgress) return error;
    send_offset += sends * element;
    receive_offset += receives * element;
  }
  return kSuccess;
}

Error CollectiveTask::call(const DeviceTensor& tensor, cuda::StreamHandle stream) {
  const CommHandle comm = communicator_->handle();
  switch (collective_.kind) {
    case OpKind::kAllreduce:
      return library_.ncclAllReduce(tensor.input, tensor.output, tensor.count, dtype(), op_, comm,
                                    stream);
    case OpKind::kReduceScatter: return reduce_scatter(tensor, stream);
    case OpKind::kAllgather: return allgather(tensor, stream);
    case OpKind::kAlltoall: return alltoall(tensor, stream);
    case OpKind::kBroadcast:
      return library_.ncclBroadcast(
          collective_.root == collective_.place ? tensor.input : tensor.output, tensor.output,
          tensor.count, dtype(), collective_.root, comm, stream);
    case OpKind::kBarrier:
    case OpKind::kCreateSet:
    case OpKind::kDestroySet: break;
  }
  KOLO_CHECK(false);
}

// All-reduces and broadcasts of several tensors. True if some are packed.
bool CollectiveTask::plan_packing() {
  const bool fuses =
      collective_.kind == OpKind::kAllreduce || collective_.kind == OpKind::kBroadcast;
  items_.clear();
  const std::size_t element = element_bytes(collective_.dtype);
  for (const DeviceTensor& tensor : collective_.tensors) {
    items_.push_back({tensor.count * element, tensor.prescale, tensor.postscale});
  }
  if (pack_bytes_ && fuses) return nccl::plan_packing(items_, *pack_bytes_, packed_);
  packed_.assign(items_.size(), false);
  return false;
}

// Broadcasts are unpacked as bytes, whatever they are.
bool CollectiveTask::is_counted_by_unpacking() const {
  const auto is_one = [](const DeviceTensor& tensor) { return tensor.is_counted; };
  return collective_.kind == OpKind::kAllreduce && is_floating(collective_.dtype) &&
         std::ranges::any_of(collective_.tensors, is_one);
}

// The counters of packed tensors come first, in the order of unpacking.
void CollectiveTask::plan_counting(cuda::Device& device) {
  const std::vector<DeviceTensor>& tensors = collective_.tensors;
  nonfinite_.begin(tensors.size());
  const bool by_unpacking = is_counted_by_unpacking();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_floating(tensors[i].output_dtype)) nonfinite_.set_none(i);
    if (by_unpacking && packed_[i] && device.kernels() != nullptr) nonfinite_.add(i);
  }
  if (device.kernels() == nullptr) return;
  for (const DataType dtype :
       {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64}) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const DeviceTensor& tensor = tensors[i];
      const bool is_in_place = tensor.is_counted && !(by_unpacking && packed_[i]);
      if (!is_in_place || tensor.output_dtype != dtype) continue;
      nonfinite_.add_in_place(i, tensor.output, tensor.output_count, dtype);
    }
  }
  nonfinite_.take(device.counters());
}

// The bytes that they take.
std::size_t CollectiveTask::place_tensors() {
  inputs_.clear();
  outputs_.clear();
  const std::size_t element = element_bytes(collective_.dtype);
  std::size_t offset = 0;
  for (std::size_t i = 0; i < packed_.size(); ++i) {
    if (!packed_[i]) continue;
    const DeviceTensor& tensor = collective_.tensors[i];
    // Only read from.
    inputs_.push_back({const_cast<void*>(tensor.input), offset, tensor.count});  // NOLINT
    outputs_.push_back({tensor.output, offset, tensor.count});
    offset += (tensor.count * element + kPlaceBytes - 1) / kPlaceBytes * kPlaceBytes;
  }
  return offset;
}

Status CollectiveTask::pack(cuda::Device& device) {
  fused_bytes_ = place_tensors();
  const Result<std::byte*> buffer = device.fusion_buffer(fused_bytes_);
  if (!buffer) return buffer.status();
  fusion_buffer_ = *buffer;
  const bool gives =
      collective_.kind == OpKind::kAllreduce || collective_.root == collective_.place;
  if (!gives) return Status::ok();
  cuda::Batch batch;
  batch.tensors = inputs_;
  batch.buffer = fusion_buffer_;
  batch.tensor_type = batch.buffer_type = collective_.dtype;
  batch.scale = scales_of_packed().prescale;
  return device.kernels()->pack(device.stream(), batch);
}

Status CollectiveTask::unpack(cuda::Device& device) {
  cuda::Batch batch;
  batch.tensors = outputs_;
  batch.buffer = fusion_buffer_;
  batch.tensor_type = batch.buffer_type = collective_.dtype;
  batch.scale = scales_of_packed().postscale;
  batch.counters = is_counted_by_unpacking() ? nonfinite_.counters() : nullptr;
  return device.kernels()->unpack(device.stream(), batch);
}

const PackingItem& CollectiveTask::scales_of_packed() const {
  return items_[static_cast<std::size_t>(std::ranges::find(packed_, true) - packed_.begin())];
}

Error CollectiveTask::call_packed(cuda::StreamHandle stream) {
  const std::size_t count = fused_bytes_ / element_bytes(collective_.dtype);
  const CommHandle comm = communicator_->handle();
  if (collective_.kind == OpKind::kAllreduce) {
    return library_.ncclAllReduce(fusion_buffer_, fusion_buffer_, count, dtype(),
                                  static_cast<ReduceOpNumber>(collective_.op), comm, stream);
  }
  return library_.ncclBroadcast(fusion_buffer_, fusion_buffer_, count, dtype(), collective_.root,
                                comm, stream);
}

// The call for those that are packed, and one for each of the others.
Status CollectiveTask::call_all(cuda::Device& device, bool packs) {
  const cuda::StreamHandle stream = device.stream();
  ops_.assign(packed_.size(), kSum);
  for (std::size_t i = 0; i < packed_.size(); ++i) {
    if (packed_[i]) continue;
    const Result<ReduceOpNumber> op = op_of(collective_.tensors[i]);
    if (!op) return op.status();
    ops_[i] = *op;
  }
  const auto went = [](Error error) { return error == kSuccess || error == kInProgress; };
  Error error = library_.ncclGroupStart();
  if (error != kSuccess) return communicator_->settle(error, "ncclGroupStart");
  if (packs) error = call_packed(stream);
  for (std::size_t i = 0; i < packed_.size() && went(error); ++i) {
    if (packed_[i]) continue;
    op_ = ops_[i];
    error = call(collective_.tensors[i], stream);
  }
  const Error ended = library_.ncclGroupEnd();
  return communicator_->settle(went(error) ? ended : error, name_of(collective_.kind));
}

Status CollectiveTask::enqueue(cuda::Device& device) {
  KOLO_RETURN_IF_ERROR(make_outputs());
  const bool packs = plan_packing();
  plan_counting(device);
  if (packs) KOLO_RETURN_IF_ERROR(pack(device));
  KOLO_RETURN_IF_ERROR(call_all(device, packs));
  if (packs) KOLO_RETURN_IF_ERROR(unpack(device));
  if (device.kernels() == nullptr) return Status::ok();
  return nonfinite_.count(*device.kernels(), device.stream());
}

Result<cuda::EventRef> CollectiveTask::launch() {
  KOLO_RETURN_IF_ERROR(communicator_->doomed());
  const Result<cuda::Device*> device = thread_.device(device_);
  if (!device) return device.status();
  for (DeviceTensor& tensor : collective_.tensors) {
    if (tensor.ready) KOLO_RETURN_IF_ERROR((*device)->await(std::exchange(tensor.ready, {})));
  }
  made_ops_.clear();
  const Status status = enqueue(**device);
  if (!status) communicator_->doom(status);  // the other ranks are in the midst of it
  for (const ReduceOpNumber op : made_ops_) {
    if (communicator_->handle() != nullptr) {
      library_.ncclRedOpDestroy(op, communicator_->handle());
    }
  }
  // After an error something may be queued all the same, which uses the buffers.
  Result<cuda::EventRef> done = (*device)->record();
  if (!status && !done) return status;
  return done;
}

}  // namespace kolo::internal::nccl
