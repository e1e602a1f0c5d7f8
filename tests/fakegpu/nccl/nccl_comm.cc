// The fake NCCL's functions about the library, communicators, memory and registrations.
#include <cstring>

#include "tests/fakegpu/nccl/library.h"
#include "tests/fakegpu/nccl/nccl_abi.h"
#include "tests/fakegpu/nccl/numbers.h"

namespace fakegpu {
namespace {

constexpr int kNotBlocking = 0;

// Makes the communicator and its handle, and begins to initialise it, now or with the group.
int initialise(Machine& m, nccl::CommHandle* handle, Comm::IdSource id, const Comm::Plan& plan) {
  Device& device = m.current_device();
  auto comm = std::make_shared<Comm>(device, plan);
  *handle = static_cast<nccl::CommHandle>(nccl_library().comms.add(comm));
  ++m.communicators;
  const auto forget = [&m, handle] {
    nccl_library().comms.take(*handle);
    *handle = nullptr;
    --m.communicators;
  };
  Group& group = Group::of_this_thread();
  group.add_initialisation(comm, std::move(id), forget);
  return group.launch_if_closed();
}

Comm::IdSource given(const nccl::UniqueId& id) {
  return [id](nccl::UniqueId* result, const Meeting::Stop&) {
    *result = id;
    return nccl::kSuccess;
  };
}

int check_plan(Machine& m, nccl::CommHandle* handle, const Comm::Plan& plan,
               const nccl::CommConfig* config) {
  if (handle == nullptr) return nccl::kInvalidArgument;
  *handle = nullptr;
  if (plan.size < 1 || plan.rank < 0 || plan.rank >= plan.size || plan.size > Meeting::kMaxRanks) {
    keep_last_error("Invalid rank requested");
    return nccl::kInvalidArgument;
  }
  if (config != nullptr && (config->magic != 0xcafebeef || config->size < sizeof *config)) {
    keep_last_error("ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    return nccl::kInvalidArgument;
  }
  return m.forbidden_by_capture() != 0 ? nccl::kUnhandledCudaError : nccl::kSuccess;
}

bool blocks(const nccl::CommConfig* config) {
  return config == nullptr || config->blocking != kNotBlocking;
}

// Returns the number of registrations that went with it.
long close(Machine& m, const CommPointer& comm) {
  comm->stop_thread();
  --m.communicators;
  const long registrations = nccl_library().registrations.take_all(
      [&comm](const Registration& one) { return one.comm.lock() == comm; });
  m.registrations -= registrations;
  m.reduction_ops -= static_cast<long>(comm->factors_left());
  return registrations;
}

CommPointer take(Machine& m, nccl::CommHandle handle, const char* function) {
  CommPointer comm = nccl_library().comms.take(handle);
  if (comm == nullptr) {
    m.census.misuse(
        std::string(function) + ": the communicator is " +
        (nccl_library().comms.is_stale(handle) ? "aborted or destroyed already" : "none"));
  }
  return comm;
}

int destroy(Machine& m, nccl::CommHandle handle) {
  const CommPointer comm = take(m, handle, "ncclCommDestroy");
  if (comm == nullptr) return nccl::kInvalidArgument;
  if (!comm->is_aborted() && (comm->error() == nccl::kInProgress || comm->is_busy())) {
    m.census.misuse("ncclCommDestroy: work is in flight");
    comm->abort();
  }
  if (close(m, comm) > 0) m.census.misuse("ncclCommDestroy: a buffer is still registered");
  return nccl::kSuccess;
}

int abort_comm(Machine& m, nccl::CommHandle handle) {
  const CommPointer comm = take(m, handle, "ncclCommAbort");
  if (comm == nullptr) return nccl::kInvalidArgument;
  comm->abort();
  close(m, comm);
  return nccl::kSuccess;
}

int shrink(Machine& m, const CommPointer& parent, const std::vector<int>& excluded,
           nccl::CommHandle* handle, bool is_blocking, int flags, const Fault& fault) {
  if ((flags & nccl::kShrinkAbort) == 0 && parent->is_busy()) {
    m.census.misuse("ncclCommShrink: work is in flight");
    return nccl::kInvalidUsage;
  }
  if (parent->shrinks >= Meeting::kMaxShrinks) return nccl::kInternalError;
  Comm::Plan plan = {0, -1, is_blocking, fault};
  int first = -1;
  for (int rank = 0; rank < parent->size(); ++rank) {
    if (std::find(excluded.begin(), excluded.end(), rank) != excluded.end()) continue;
    if (first < 0) first = rank;
    if (rank == parent->rank()) plan.rank = plan.size;
    ++plan.size;
  }
  if (plan.rank < 0) return nccl::kInvalidArgument;
  // With the flag, what is stuck ends; the parent is fit for nothing but its end then.
  if ((flags & nccl::kShrinkAbort) != 0) parent->abort();
  const int number = parent->shrinks++;
  const bool leads = first == parent->rank();
  // The first of them makes the id, the others learn it where they met before.
  const auto find_id = [parent, number, leads](nccl::UniqueId* id, const Meeting::Stop& stop) {
    if (!leads) {
      return parent->meeting()->wait_for_shrink(number, id, stop) ? nccl::kSuccess
                                                                  : nccl::kInternalError;
    }
    if (!Meeting::make_id(id)) return nccl::kSystemError;
    parent->meeting()->publish_shrink(number, *id);
    return nccl::kSuccess;
  };
  return initialise(m, handle, find_id, plan);
}

int check_scalar(int dtype, const void* scalar) {
  return scalar == nullptr || size_of_type(dtype) == 0 ? nccl::kInvalidArgument : nccl::kSuccess;
}

int add_registration(Machine& m, const CommPointer& comm, void* pointer, std::size_t bytes,
                     void** handle) {
  const std::shared_ptr<Buffer> buffer = m.memory.find(pointer);
  if (buffer == nullptr || buffer->inside(pointer, bytes) == nullptr) {
    return nccl::kInvalidArgument;
  }
  *handle = nccl_library().registrations.add(
      std::make_shared<Registration>(std::weak_ptr<Comm>(comm), pointer, bytes));
  ++m.registrations;
  return nccl::kSuccess;
}

int remove_registration(Machine& m, const CommPointer& comm, const void* handle) {
  const std::shared_ptr<Registration> found = nccl_library().registrations.take(handle);
  if (found == nullptr || found->comm.lock() != comm) {
    m.census.misuse("a registration was removed that is none of this communicator");
    return nccl::kInvalidArgument;
  }
  --m.registrations;
  return nccl::kSuccess;
}

}  // namespace
}  // namespace fakegpu

namespace kolo::internal::nccl {

using fakegpu::comm_call;
using fakegpu::CommPointer;
using fakegpu::Fault;
using fakegpu::Machine;
using fakegpu::MemoryKind;
using fakegpu::nccl_call;

extern "C" {

Error ncclGetVersion(int* version) {
  fakegpu::machine().census.count_call(__func__);
  *version = fakegpu::machine().settings.nccl_version;
  return kSuccess;
}

const char* ncclGetErrorString(Error error) {
  static constexpr const char* kTexts[] = {"no error",
                                           "unhandled cuda error",
                                           "unhandled system error",
                                           "internal error",
                                           "invalid argument",
                                           "invalid usage",
                                           "remote process exited or there was a network error",
                                           "NCCL operation in progress"};
  return error >= 0 && error <= kInProgress ? kTexts[error] : "unknown result code";
}

const char* ncclGetLastError(CommHandle) { return fakegpu::last_error(); }

Error ncclGetUniqueId(UniqueId* id) {
  fakegpu::Machine& m = fakegpu::machine();
  m.census.count_call(__func__);
  const Fault fault = m.faults.next(__func__);
  if (fault.is(fakegpu::Effect::kBlock)) fakegpu::pause_for(fakegpu::kHangMicroseconds);
  if (fault.is(fakegpu::Effect::kError)) return kSystemError;
  return fakegpu::Meeting::make_id(id) ? kSuccess : kSystemError;
}

Error ncclCommInitRankConfig(CommHandle* comm, int size, UniqueId id, int rank,
                             CommConfig* config) {
  return nccl_call(__func__, [&](Machine& m, const Fault& fault) {
    const fakegpu::Comm::Plan plan = {size, rank, fakegpu::blocks(config), fault};
    const Error error = fakegpu::check_plan(m, comm, plan, config);
    if (error == kSuccess) m.creations.add(id.bytes, sizeof id.bytes, size, rank);
    return error != kSuccess ? error : fakegpu::initialise(m, comm, fakegpu::given(id), plan);
  });
}

Error ncclCommInitRank(CommHandle* comm, int size, UniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}

Error ncclCommGetAsyncError(CommHandle comm, Error* error) {
  return nccl_call(__func__, [&](Machine& m, const Fault&) {
    const CommPointer found = fakegpu::nccl_library().comms.find(comm);
    if (found == nullptr || error == nullptr) {
      m.census.misuse("ncclCommGetAsyncError: no such communicator");
      return kInvalidArgument;
    }
    *error = found->error();
    return kSuccess;
  });
}

Error ncclCommFinalize(CommHandle comm) {
  return comm_call(__func__, comm, [&](Machine& m, const CommPointer& found, const Fault&) {
    if (found->is_finalized()) {
      m.census.misuse("ncclCommFinalize: twice");
      return kInvalidArgument;
    }
    found->post([self = found.get()] { return self->finish(); });
    return found->is_blocking() ? found->settle() : kInProgress;
  });
}

// These two answer also without a device: what is left must go.
Error ncclCommDestroy(CommHandle comm) {
  fakegpu::Machine& m = fakegpu::plain_call(__func__);
  return comm == nullptr ? kSuccess : fakegpu::destroy(m, comm);
}

Error ncclCommAbort(CommHandle comm) {
  fakegpu::Machine& m = fakegpu::plain_call(__func__);
  return comm == nullptr ? kSuccess : fakegpu::abort_comm(m, comm);
}

Error ncclCommCount(CommHandle comm, int* size) {
  return comm_call(__func__, comm, [&](Machine&, const CommPointer& found, const Fault&) {
    *size = found->size();
    return kSuccess;
  });
}

Error ncclCommUserRank(CommHandle comm, int* rank) {
  return comm_call(__func__, comm, [&](Machine&, const CommPointer& found, const Fault&) {
    *rank = found->rank();
    return kSuccess;
  });
}

Error ncclCommCuDevice(CommHandle comm, int* device) {
  return comm_call(__func__, comm, [&](Machine&, const CommPointer& found, const Fault&) {
    *device = found->device().number();
    return kSuccess;
  });
}

Error ncclCommShrink(CommHandle comm, int* excluded, int excluded_count, CommHandle* shrunk,
                     CommConfig* config, int flags) {
  return nccl_call(__func__, [&](Machine& m, const Fault& fault) {
    const CommPointer parent = fakegpu::nccl_library().comms.find(comm);
    if (parent == nullptr || shrunk == nullptr || parent->meeting() == nullptr) {
      m.census.misuse("ncclCommShrink: no such communicator");
      return kInvalidArgument;
    }
    const bool is_blocking = config != nullptr ? fakegpu::blocks(config) : parent->is_blocking();
    return fakegpu::shrink(m, parent, std::vector<int>(excluded, excluded + excluded_count), shrunk,
                           is_blocking, flags, fault);
  });
}

Error ncclRedOpCreatePreMulSum(ReduceOpNumber* op, void* scalar, DataTypeNumber dtype,
                               ScalarResidence residence, CommHandle comm) {
  return comm_call(__func__, comm, [&](Machine& m, const CommPointer& found, const Fault&) {
    if (const Error error = fakegpu::check_scalar(dtype, scalar)) return error;
    fakegpu::Factor factor;
    factor.is_used = true;
    if (residence == kScalarOnHost) {
      std::memcpy(factor.bytes, scalar, fakegpu::size_of_type(dtype));
    } else {
      factor.on_device = scalar;
    }
    *op = found->add_factor(factor);
    ++m.reduction_ops;
    return kSuccess;
  });
}

Error ncclRedOpDestroy(ReduceOpNumber op, CommHandle comm) {
  return comm_call(__func__, comm, [&](Machine& m, const CommPointer& found, const Fault&) {
    if (!found->remove_factor(op)) {
      m.census.misuse("ncclRedOpDestroy: no such reduction");
      return kInvalidArgument;
    }
    --m.reduction_ops;
    return kSuccess;
  });
}

Error ncclMemAlloc(void** pointer, std::size_t bytes) {
  return nccl_call(__func__, [&](Machine& m, const Fault&) {
    if (pointer == nullptr) return kInvalidArgument;
    *pointer = m.memory.allocate(MemoryKind::kNccl, Machine::thread().device, bytes);
    return *pointer != nullptr ? kSuccess : kUnhandledCudaError;
  });
}

Error ncclMemFree(void* pointer) {
  fakegpu::Machine& m = fakegpu::plain_call(__func__);
  const std::shared_ptr<fakegpu::Buffer> buffer = m.memory.find(pointer);
  if (buffer == nullptr || buffer->kind() != MemoryKind::kNccl || buffer->address() != pointer) {
    m.census.misuse("ncclMemFree: not of ncclMemAlloc, or freed already");
    return kInvalidArgument;
  }
  m.census.count_host_wait();
  m.device(buffer->device())->synchronize();
  m.memory.release(pointer, MemoryKind::kNccl);
  return kSuccess;
}

Error ncclCommRegister(CommHandle comm, void* pointer, std::size_t bytes, void** handle) {
  return comm_call(__func__, comm, [&](Machine& m, const CommPointer& found, const Fault&) {
    return fakegpu::add_registration(m, found, pointer, bytes, handle);
  });
}

Error ncclCommDeregister(CommHandle comm, void* handle) {
  return comm_call(__func__, comm, [&](Machine& m, const CommPointer& found, const Fault&) {
    return fakegpu::remove_registration(m, found, handle);
  });
}

Error ncclCommWindowRegister(CommHandle comm, void* pointer, std::size_t bytes,
                             WindowHandle* window, int) {
  return comm_call(__func__, comm, [&](Machine& m, const CommPointer& found, const Fault&) {
    void* handle = nullptr;
    const Error error = fakegpu::add_registration(m, found, pointer, bytes, &handle);
    *window = static_cast<WindowHandle>(handle);
    return error;
  });
}

Error ncclCommWindowDeregister(CommHandle comm, WindowHandle window) {
  return comm_call(__func__, comm, [&](Machine& m, const CommPointer& found, const Fault&) {
    return fakegpu::remove_registration(m, found, window);
  });
}

}  // extern "C"
}  // namespace kolo::internal::nccl
