#include "tests/fakegpu/nccl/collectives.h"

#include <algorithm>
#include <cstring>

#include "tests/fakegpu/nccl/numbers.h"

namespace fakegpu {
namespace {

std::string place_text(std::int64_t offset) {
  return offset < 0 ? "not registered" : "registered, at " + std::to_string(offset);
}

std::string text_of(const OperationShape& shape) {
  static constexpr const char* kNames[] = {"all-reduce", "reduce", "broadcast", "reduce-scatter",
                                           "all-gather", "send",   "receive"};
  return std::string(kNames[shape.kind]) + " of " + std::to_string(shape.count) +
         " elements of type " + std::to_string(shape.dtype) + ", op " + std::to_string(shape.op) +
         ", root " + std::to_string(shape.root) + ", input " + place_text(shape.input_offset) +
         ", output " + place_text(shape.output_offset);
}

bool reduces(OperationKind kind) {
  return kind == OperationKind::kAllReduce || kind == OperationKind::kReduce ||
         kind == OperationKind::kReduceScatter;
}

}  // namespace

struct Launch::Transfer {
  bool is_send = false;
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t moved = 0;
  bool is_done = false;
};

void Launch::run(const std::vector<Operation>& operations) {
  for (const Operation& operation : operations) {
    if (!operation.is_between_two() && (!begin(operation) || !collective(operation))) return;
  }
  for (const Operation& operation : operations) {
    if (operation.is_between_two() && !begin(operation)) return;
  }
  transfers(operations);
}

bool Launch::begin(const Operation& operation) {
  machine_.census.count_call("collective");
  const Fault& fault = operation.fault;
  if (fault.is(Effect::kDelay)) pause_for(fault.value, stop_);
  if (fault.is(Effect::kAsyncError)) {
    report_(fault.value != 0 ? static_cast<int>(fault.value) : nccl::kRemoteError,
            std::string("planned fault of ") + operation.function);
  }
  if (fault.is(Effect::kAsyncError) || fault.is(Effect::kNever)) {
    wait_for_stop();
    return false;
  }
  return !stop_();
}

void Launch::wait_for_stop() {
  meeting_.wait_until([] { return false; }, stop_);
}

bool Launch::agree(const Operation& operation) {
  meeting_.shape(meeting_.rank()) = operation.shape();
  if (!meeting_.step(stop_)) return false;
  for (int other = 0; other < meeting_.size(); ++other) {
    const OperationShape theirs = meeting_.shape(other);
    const OperationShape mine = operation.shape();
    if (theirs == mine) continue;
    const std::string text = "ranks differ: rank " + std::to_string(meeting_.rank()) + " has " +
                             text_of(mine) + ", rank " + std::to_string(other) + " has " +
                             text_of(theirs);
    machine_.census.misuse(text);
    report_(nccl::kInternalError, text);
    wait_for_stop();
    return false;
  }
  return true;
}

bool Launch::collective(const Operation& operation) {
  if (!agree(operation)) return false;
  const auto size = static_cast<std::size_t>(meeting_.size());
  const std::size_t bytes = operation.count * size_of_type(operation.dtype);
  const bool is_root = meeting_.rank() == operation.root;
  const OperationKind kind = operation.kind;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  if (kind != OperationKind::kBroadcast || is_root) {
    input =
        access_.open(operation.input, kind == OperationKind::kReduceScatter ? bytes * size : bytes);
  }
  if (kind != OperationKind::kReduce || is_root) {
    output =
        access_.open(operation.output, kind == OperationKind::kAllGather ? bytes * size : bytes);
  }
  if (access_.failed()) {
    report_(nccl::kUnhandledCudaError, std::string(operation.function) + ": not device memory");
    return false;  // the device is broken; peers are stuck, as they would be
  }
  return exchange(operation, input, output);
}

bool Launch::exchange(const Operation& operation, const std::byte* input, std::byte* output) {
  const std::size_t element = size_of_type(operation.dtype);
  const std::size_t parts = operation.kind == OperationKind::kReduceScatter
                                ? static_cast<std::size_t>(meeting_.size())
                                : 1;
  const std::size_t chunk = Meeting::kSlotBytes / parts / element;
  for (std::size_t offset = 0; offset < operation.count; offset += chunk) {
    const std::size_t length = std::min(chunk, operation.count - offset);
    if (input != nullptr) fill_slot(operation, input, offset, length);
    if (!meeting_.step(stop_)) return false;
    if (output != nullptr) empty_slots(operation, output, offset, length);
    if (!meeting_.step(stop_)) return false;
  }
  return true;
}

void Launch::fill_slot(const Operation& operation, const std::byte* input, std::size_t offset,
                       std::size_t length) {
  const std::size_t element = size_of_type(operation.dtype);
  std::byte* slot = meeting_.slot(meeting_.rank());
  if (operation.kind != OperationKind::kReduceScatter) {
    std::memcpy(slot, input + offset * element, length * element);
    weigh(operation, slot, length);
    return;
  }
  for (int part = 0; part < meeting_.size(); ++part) {
    const auto at = static_cast<std::size_t>(part);
    std::byte* piece = slot + at * length * element;
    std::memcpy(piece, input + (at * operation.count + offset) * element, length * element);
    weigh(operation, piece, length);
  }
}

// What happens to a rank's own input before it is reduced: its factor, or a share of the average.
void Launch::weigh(const Operation& operation, std::byte* data, std::size_t count) {
  if (!reduces(operation.kind)) return;
  if (operation.op == nccl::kAvg && is_floating_type(operation.dtype)) {
    divide_array(operation.dtype, data, meeting_.size(), count);
  }
  if (!operation.factor.is_used) return;
  const std::byte* factor = operation.factor.bytes;
  if (operation.factor.on_device != nullptr) {
    factor = access_.open(operation.factor.on_device, size_of_type(operation.dtype));
  }
  if (factor != nullptr) multiply_array(operation.dtype, data, factor, count);
}

void Launch::empty_slots(const Operation& operation, std::byte* output, std::size_t offset,
                         std::size_t length) {
  const std::size_t element = size_of_type(operation.dtype);
  const std::size_t bytes = length * element;
  std::byte* to = output + offset * element;
  if (operation.kind == OperationKind::kBroadcast) {
    std::memcpy(to, meeting_.slot(operation.root), bytes);
    return;
  }
  if (operation.kind == OperationKind::kAllGather) {
    for (int other = 0; other < meeting_.size(); ++other) {
      std::memcpy(to + static_cast<std::size_t>(other) * operation.count * element,
                  meeting_.slot(other), bytes);
    }
    return;
  }
  const std::size_t piece = operation.kind == OperationKind::kReduceScatter
                                ? static_cast<std::size_t>(meeting_.rank()) * bytes
                                : 0;
  const int op = operation.factor.is_used || operation.op == nccl::kAvg ? nccl::kSum : operation.op;
  std::memcpy(to, meeting_.slot(0) + piece, bytes);
  for (int other = 1; other < meeting_.size(); ++other) {
    reduce_arrays(operation.dtype, op, to, meeting_.slot(other) + piece, length);
  }
  if (operation.op == nccl::kAvg && !is_floating_type(operation.dtype)) {
    divide_array(operation.dtype, to, meeting_.size(), length);
  }
}

bool Launch::transfers(const std::vector<Operation>& operations) {
  std::vector<Transfer> all;
  for (const Operation& operation : operations) {
    if (!operation.is_between_two()) continue;
    const bool is_send = operation.kind == OperationKind::kSend;
    const std::size_t bytes = operation.count * size_of_type(operation.dtype);
    std::byte* data = access_.open(is_send ? operation.input : operation.output, bytes);
    all.push_back({is_send, operation.root, data, bytes});
  }
  if (access_.failed()) {
    report_(nccl::kUnhandledCudaError, "a send or receive: not device memory");
    return false;
  }
  // Of those between the same two ranks in the same direction, the first goes first.
  const auto turn = [&] {
    bool all_done = true;
    bool busy[2][Meeting::kMaxRanks] = {};
    for (Transfer& transfer : all) {
      bool& is_busy = busy[transfer.is_send ? 1 : 0][transfer.peer];
      if (transfer.is_done || is_busy) continue;
      while (advance(transfer)) {
      }
      is_busy = !transfer.is_done;
      all_done = all_done && transfer.is_done;
    }
    return all_done;
  };
  return meeting_.wait_until(turn, stop_);
}

// Moves one piece; false: nothing moved, or it is done.
bool Launch::advance(Transfer& transfer) {
  if (transfer.is_done) return false;
  if (transfer.is_send) {
    if (!meeting_.box_is_free(transfer.peer)) return false;
    const std::size_t bytes = std::min(Meeting::kBoxBytes, transfer.bytes - transfer.moved);
    meeting_.put(transfer.peer, transfer.data + transfer.moved, bytes, transfer.bytes);
    transfer.moved += bytes;
  } else {
    std::size_t bytes = 0;
    std::uint64_t whole = 0;
    const std::byte* piece = meeting_.look(transfer.peer, &bytes, &whole);
    if (piece == nullptr) return false;
    if (whole != transfer.bytes) {
      const std::string text = "rank " + std::to_string(transfer.peer) + " sends " +
                               std::to_string(whole) + " bytes, rank " +
                               std::to_string(meeting_.rank()) + " expects " +
                               std::to_string(transfer.bytes);
      machine_.census.misuse(text);
      report_(nccl::kInternalError, text);
      wait_for_stop();
      return false;
    }
    std::memcpy(transfer.data + transfer.moved, piece, bytes);
    transfer.moved += bytes;
    meeting_.taken(transfer.peer);
  }
  transfer.is_done = transfer.moved == transfer.bytes;
  return true;
}

}  // namespace fakegpu
