// The fake NCCL's collectives, sends, receives and groups: every call becomes an Operation.
#include "tests/fakegpu/nccl/library.h"
#include "tests/fakegpu/nccl/nccl_abi.h"
#include "tests/fakegpu/nccl/numbers.h"

namespace fakegpu {
namespace {

constexpr int kFirstVersionWithQuarters = 22400;

int check(Machine& m, const Comm& comm, const Operation& operation) {
  const bool is_quarter = operation.dtype >= nccl::kFloat8E4m3;
  if (size_of_type(operation.dtype) == 0 ||
      (is_quarter && m.settings.nccl_version < kFirstVersionWithQuarters)) {
    keep_last_error(std::string(operation.function) + " : invalid type");
    return nccl::kInvalidArgument;
  }
  if (operation.root < 0 || operation.root >= comm.size()) {
    keep_last_error(std::string(operation.function) + " : invalid root or peer");
    return nccl::kInvalidArgument;
  }
  if (operation.stream == nullptr || &operation.stream->device() != &comm.device()) {
    m.census.misuse(std::string(operation.function) + ": a stream of another device");
    return nccl::kUnhandledCudaError;
  }
  if (comm.is_finalized()) {
    m.census.misuse(std::string(operation.function) + ": the communicator is finalized");
    return nccl::kInvalidUsage;
  }
  return nccl::kSuccess;
}

// How far from the beginning of registered memory; -1: in none.
std::int64_t offset_of(const CommPointer& comm, const void* pointer) {
  const auto* const at = static_cast<const std::byte*>(pointer);
  const auto begin = [](const Registration& one) {
    return static_cast<const std::byte*>(one.pointer);
  };
  const auto found = nccl_library().registrations.find_if([&](const Registration& one) {
    return one.comm.lock() == comm && at >= begin(one) && at < begin(one) + one.bytes;
  });
  return found == nullptr ? -1 : at - begin(*found);
}

int enqueue(const char* function, nccl::CommHandle handle, cuda::StreamHandle stream,
            Operation operation) {
  Group& group = Group::of_this_thread();
  const int result = comm_call(
      function, handle, [&](Machine& m, const CommPointer& comm, const Fault& fault) -> int {
        operation.function = function;
        operation.fault = fault;
        operation.input_offset = offset_of(comm, operation.input);
        operation.output_offset = offset_of(comm, operation.output);
        if (fault.is(Effect::kHang)) {
          pause_for(kHangMicroseconds, [&comm] { return comm->is_aborted(); });
        }
        if (fault.is(Effect::kDelay)) {
          pause_for(fault.value, [&comm] { return comm->is_aborted(); });
          operation.fault = Fault();
        }
        // A default stream is the one of the communicator's device.
        ThreadState& mine = Machine::thread();
        const int device = std::exchange(mine.device, comm->device().number());
        operation.stream = m.find_stream(stream);
        mine.device = device;
        if (const int error = check(m, *comm, operation)) return error;
        if (!comm->find_factor(operation.op, &operation.factor)) {
          keep_last_error(std::string(function) + " : invalid reduction operation");
          return nccl::kInvalidArgument;
        }
        // Empty collectives go nowhere; a send or receive of nothing still meets its other end.
        if (operation.count == 0 && !operation.is_between_two()) return nccl::kSuccess;
        group.add(comm, operation);
        return group.launch_if_closed();
      });
  if (result != nccl::kSuccess && result != nccl::kInProgress && group.is_open()) {
    group.set_failed(result);
  }
  return result;
}

}  // namespace
}  // namespace fakegpu

namespace kolo::internal::nccl {

using fakegpu::enqueue;
using fakegpu::Operation;
using fakegpu::OperationKind;

extern "C" {

Error ncclAllReduce(const void* input, void* output, std::size_t count, DataTypeNumber dtype,
                    ReduceOpNumber op, CommHandle comm, cuda::StreamHandle stream) {
  Operation operation{OperationKind::kAllReduce, "", input, output, count, dtype, op};
  return enqueue(__func__, comm, stream, std::move(operation));
}

Error ncclReduce(const void* input, void* output, std::size_t count, DataTypeNumber dtype,
                 ReduceOpNumber op, int root, CommHandle comm, cuda::StreamHandle stream) {
  Operation operation{OperationKind::kReduce, "", input, output, count, dtype, op, root};
  return enqueue(__func__, comm, stream, std::move(operation));
}

Error ncclBroadcast(const void* input, void* output, std::size_t count, DataTypeNumber dtype,
                    int root, CommHandle comm, cuda::StreamHandle stream) {
  Operation operation{OperationKind::kBroadcast, "", input, output, count, dtype, 0, root};
  return enqueue(__func__, comm, stream, std::move(operation));
}

Error ncclReduceScatter(const void* input, void* output, std::size_t output_count,
                        DataTypeNumber dtype, ReduceOpNumber op, CommHandle comm,
                        cuda::StreamHandle stream) {
  Operation operation{OperationKind::kReduceScatter, "", input, output, output_count, dtype, op};
  return enqueue(__func__, comm, stream, std::move(operation));
}

Error ncclAllGather(const void* input, void* output, std::size_t input_count, DataTypeNumber dtype,
                    CommHandle comm, cuda::StreamHandle stream) {
  Operation operation{OperationKind::kAllGather, "", input, output, input_count, dtype};
  return enqueue(__func__, comm, stream, std::move(operation));
}

Error ncclSend(const void* input, std::size_t count, DataTypeNumber dtype, int peer,
               CommHandle comm, cuda::StreamHandle stream) {
  Operation operation{OperationKind::kSend, "", input, nullptr, count, dtype, 0, peer};
  return enqueue(__func__, comm, stream, std::move(operation));
}

Error ncclRecv(void* output, std::size_t count, DataTypeNumber dtype, int peer, CommHandle comm,
               cuda::StreamHandle stream) {
  Operation operation{OperationKind::kRecv, "", nullptr, output, count, dtype, 0, peer};
  return enqueue(__func__, comm, stream, std::move(operation));
}

Error ncclGroupStart() {
  return fakegpu::nccl_call(__func__, [](fakegpu::Machine&, const fakegpu::Fault&) {
    fakegpu::Group::of_this_thread().start();
    return kSuccess;
  });
}

// A group that was started ends, whatever else is wrong.
Error ncclGroupEnd() {
  fakegpu::Group& group = fakegpu::Group::of_this_thread();
  const Error error = fakegpu::nccl_call(
      __func__, [](fakegpu::Machine&, const fakegpu::Fault&) { return kSuccess; });
  if (error != kSuccess) group.set_failed(error);
  return group.end();
}

}  // extern "C"
}  // namespace kolo::internal::nccl
