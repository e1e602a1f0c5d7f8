#include "ops/cuda/staged.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "ops/collectives.h"
#include "ops/nonfinite.h"

namespace kolo::internal::cuda {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{4} << 20;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kCountedAtOnce = std::size_t{1} << 17;  // elements

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

template <typename Byte, typename Memory>
Byte* at(Memory* memory, std::size_t bytes) {
  return memory == nullptr ? nullptr : static_cast<Byte*>(memory) + bytes;
}

}  // namespace

StagedOperation::StagedOperation() {
  for (auto& buffer : buffers_) buffer = std::make_unique<Buffer>();
}

void StagedOperation::start(Collectives& collectives, std::uint32_t sequence) {
  begin(collectives, sequence);
  next_tensor_ = 0;
  next_element_ = 0;
  all_cut_ = false;
  brought_ = 0;
  reduced_ = 0;
  reducing_ = false;
  counting_ = nullptr;
  for (const StagedTensor& tensor : call_.tensors) {
    if (tensor.nonfinite != nullptr) *tensor.nonfinite = 0;
  }
}

bool StagedOperation::is_busy() const {
  return std::any_of(buffers_.begin(), buffers_.end(), [](const auto& buffer) {
    return !buffer->in.is_idle() || !buffer->out.is_idle();
  });
}

bool StagedOperation::take_back(const Status& why, Nanos patience) {
  bool is_left = false;
  for (auto& buffer : buffers_) {
    for (CopyTask* task : {&buffer->in, &buffer->out}) {
      if (task->is_idle()) continue;
      is_left =
          call_.thread->take_back(*task, why, patience) == LaunchThread::TakenBack::kLeftBehind ||
          is_left;
    }
  }
  return is_left;
}

void StagedOperation::release(const Runtime& runtime) {
  for (auto& buffer : buffers_) buffer->staging.release(runtime);
}

// Chunks are brought one ahead of the one that is reduced; a buffer is free when its last chunk is
// back on the device.
void StagedOperation::step() {
  if (has_failed()) return;
  if (reducing_) {
    Buffer& buffer = *buffers_[reduced_ % 2];
    take_back(buffer);
    counting_ = is_on_host() ? nullptr : &buffer;
    counting_part_ = 0;
    counted_ = 0;
    ++reduced_;
    reducing_ = false;
  }
  if (counts()) return;
  if (!all_cut_ && brought_ < reduced_ + 2) {
    Buffer& buffer = *buffers_[brought_ % 2];
    if (buffer.in.is_idle() && buffer.out.is_idle()) {
      if (cut(buffer)) {
        bring(buffer);
        ++brought_;
      }
      return;
    }
  }
  if (reduced_ < brought_) {
    Buffer& buffer = *buffers_[reduced_ % 2];
    if (!buffer.in.is_idle()) return idle();
    if (!has_failed()) reduce(buffer);  // it may have, since it was asked above
    return;
  }
  if (!all_cut_ || is_busy()) return idle();
  if (!has_failed()) complete();
}

bool StagedOperation::has_failed() {
  for (auto& buffer : buffers_) {
    for (const CopyTask* task : {&buffer->in, &buffer->out}) {
      if (task->phase() != Task::Phase::kEnded || task->status().is_ok()) continue;
      fail(task->status());
      return true;
    }
  }
  return false;
}

// ---- What goes together -------------------------------------------------------------------------

bool StagedOperation::is_chunked() const {
  return call_.kind == OpKind::kAllreduce && call_.reduction.op != ReduceOp::kAdasum &&
         !call_.whole;
}

// False: there is nothing more.
bool StagedOperation::cut(Buffer& buffer) {
  buffer.parts.clear();
  buffer.bytes = 0;
  if (is_chunked()) {
    cut_chunk(buffer);
    all_cut_ = all_cut_ || next_tensor_ == call_.tensors.size();
    return !buffer.parts.empty();
  }
  cut_all(buffer);
  all_cut_ = true;
  return true;
}

void StagedOperation::cut_chunk(Buffer& buffer) {
  const std::size_t element = element_bytes(call_.reduction.dtype);
  while (next_tensor_ < call_.tensors.size() && buffer.bytes < kChunkBytes) {
    const std::size_t left = call_.tensors[next_tensor_].input_count - next_element_;
    const std::size_t room = std::max<std::size_t>((kChunkBytes - buffer.bytes) / element, 1);
    const std::size_t count = std::min(left, room);
    if (count > 0) {
      buffer.parts.push_back(
          {next_tensor_, next_element_, count, count, buffer.bytes, buffer.bytes});
      buffer.bytes += aligned(count * element);
    }
    next_element_ += count;
    if (count < left) continue;
    ++next_tensor_;
    next_element_ = 0;
  }
}

void StagedOperation::cut_all(Buffer& buffer) {
  const std::size_t element = element_bytes(call_.reduction.dtype);
  const bool in_place = call_.kind == OpKind::kAllreduce || call_.kind == OpKind::kBroadcast;
  for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
    const StagedTensor& tensor = call_.tensors[i];
    Part part{i, 0, tensor.input_count, tensor.output_count, buffer.bytes, buffer.bytes};
    buffer.bytes +=
        aligned(std::max(tensor.input_count, in_place ? tensor.output_count : 0) * element);
    if (!in_place) {
      part.output_offset = buffer.bytes;
      buffer.bytes += aligned(tensor.output_count * element);
    }
    buffer.parts.push_back(part);
  }
}

// ---- Copies -------------------------------------------------------------------------------------

void StagedOperation::bring(Buffer& buffer) {
  if (is_on_host()) return;
  const std::size_t element = element_bytes(call_.reduction.dtype);
  buffer.in.prepare(*call_.thread, call_.device, buffer.staging, buffer.bytes);
  if (call_.make_output) {
    buffer.in.set_before([this] { return call_.make_output(call_.tensors.front()); });
  }
  for (const Part& part : buffer.parts) {
    StagedTensor& tensor = call_.tensors[part.tensor];
    const bool reads = tensor.input != nullptr && part.input_count > 0;
    buffer.in.add({reads ? const_cast<std::byte*>(  // NOLINT: copied from, not to
                               at<const std::byte>(tensor.input, part.first * element))
                         : nullptr,
                   part.input_offset, reads ? part.input_count * element : 0,
                   std::exchange(tensor.ready, {})});
  }
  call_.thread->post(buffer.in);
}

void StagedOperation::take_back(Buffer& buffer) {
  if (is_on_host()) return;
  const std::size_t element = element_bytes(call_.reduction.dtype);
  buffer.out.prepare(*call_.thread, call_.device, buffer.staging, buffer.bytes);
  for (const Part& part : buffer.parts) {
    if (part.output_count == 0) continue;
    buffer.out.add({at<std::byte>(call_.tensors[part.tensor].output, part.first * element),
                    part.output_offset,
                    part.output_count * element,
                    {}});
  }
  call_.thread->post(buffer.out);
}

// A bounded part of the counting; false if there is none.
bool StagedOperation::counts() {
  for (; counting_ != nullptr && counting_part_ < counting_->parts.size(); ++counting_part_) {
    const Part& part = counting_->parts[counting_part_];
    const StagedTensor& tensor = call_.tensors[part.tensor];
    if (tensor.nonfinite == nullptr || !is_floating(tensor.dtype)) continue;
    const std::size_t element = element_bytes(tensor.dtype);
    const std::size_t bytes = part.output_count * element_bytes(call_.reduction.dtype);
    const std::size_t count = std::min(bytes / element - counted_, kCountedAtOnce);
    if (count > 0) {
      const std::byte* const memory = counting_->staging.memory() + part.output_offset;
      *tensor.nonfinite += static_cast<std::int64_t>(
          count_nonfinite(tensor.dtype, memory + counted_ * element, count));
      counted_ += count;
      return true;
    }
    counted_ = 0;
  }
  counting_ = nullptr;
  return false;
}

const void* StagedOperation::input_of(const Buffer& buffer, const Part& part) const {
  const std::size_t element = element_bytes(call_.reduction.dtype);
  if (!is_on_host()) return buffer.staging.memory() + part.input_offset;
  return at<const std::byte>(call_.tensors[part.tensor].input, part.first * element);
}

void* StagedOperation::output_of(const Buffer& buffer, const Part& part) const {
  const std::size_t element = element_bytes(call_.reduction.dtype);
  if (!is_on_host()) return buffer.staging.memory() + part.output_offset;
  return at<std::byte>(call_.tensors[part.tensor].output, part.first * element);
}

// ---- The collective -----------------------------------------------------------------------------

void StagedOperation::reduce(Buffer& buffer) {
  reducing_ = true;
  run(begin_collective(buffer));
}

std::span<const std::size_t> StagedOperation::in_bytes(const std::vector<std::size_t>& counts,
                                                       std::vector<std::size_t>& scratch) const {
  const std::size_t element = element_bytes(call_.reduction.dtype);
  scratch.clear();
  for (const std::size_t count : counts) scratch.push_back(count * element);
  return scratch;
}

Operation& StagedOperation::begin_allreduce(Buffer& buffer) {
  pieces_.clear();
  for (const Part& part : buffer.parts) {
    const StagedTensor& tensor = call_.tensors[part.tensor];
    pieces_.push_back({input_of(buffer, part), output_of(buffer, part), part.input_count,
                       tensor.prescale, tensor.postscale});
  }
  if (call_.reduction.op != ReduceOp::kAdasum) {
    return collectives().start_allreduce(sequence(), pieces_, call_.reduction);
  }
  adasum_.start(collectives(), sequence(), pieces_.front(), call_.reduction.dtype);
  return adasum_;
}

Operation& StagedOperation::begin_broadcast(Buffer& buffer) {
  broadcasts_.clear();
  const std::size_t element = element_bytes(call_.reduction.dtype);
  for (const Part& part : buffer.parts) {
    broadcasts_.push_back(
        {input_of(buffer, part), output_of(buffer, part), part.output_count * element});
  }
  return collectives().start_broadcast(sequence(), call_.root, broadcasts_);
}

Operation& StagedOperation::begin_collective(Buffer& buffer) {
  const Part& part = buffer.parts.front();
  switch (call_.kind) {
    case OpKind::kAllreduce: return begin_allreduce(buffer);
    case OpKind::kReduceScatter: {
      const StagedTensor& tensor = call_.tensors[part.tensor];
      const Piece piece{input_of(buffer, part), output_of(buffer, part), part.input_count,
                        tensor.prescale, tensor.postscale};
      return collectives().start_reduce_scatter(sequence(), piece, call_.send_counts,
                                                call_.reduction);
    }
    case OpKind::kAllgather:
      return collectives().start_allgather(sequence(), input_of(buffer, part),
                                           output_of(buffer, part),
                                           in_bytes(call_.send_counts, sizes_));
    case OpKind::kAlltoall:
      return collectives().start_alltoall(
          sequence(), input_of(buffer, part), output_of(buffer, part),
          in_bytes(call_.send_counts, sizes_), in_bytes(call_.receive_counts, receive_sizes_));
    case OpKind::kBroadcast: return begin_broadcast(buffer);
    case OpKind::kBarrier:
    case OpKind::kCreateSet:
    case OpKind::kDestroySet: break;
  }
  KOLO_CHECK(false);
}

}  // namespace kolo::internal::cuda
