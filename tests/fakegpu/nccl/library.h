// The fake NCCL as a whole: its handles, the groups of its callers, the last error.
//
// Threads: any; a group belongs to its thread. Ownership: made at the first call, never taken down.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakegpu/machine.h"
#include "tests/fakegpu/nccl/comm.h"

namespace fakegpu {

// Keeps the text for ncclGetLastError(), whose result stays good for ever.
void keep_last_error(const std::string& text);
const char* last_error();

struct Registration {
  std::weak_ptr<Comm> comm;
  void* pointer = nullptr;
  std::size_t bytes = 0;
};

struct NcclLibrary {
  HandleTable<Comm> comms{0x61};
  HandleTable<Registration> registrations{0x62};
};
NcclLibrary& nccl_library();

// What a thread has begun with ncclGroupStart().
class Group {
 public:
  static Group& of_this_thread();

  bool is_open() const { return depth_ > 0; }
  void start() { ++depth_; }
  // Closes one level; the outermost launches all.
  int end();

  void add(const CommPointer& comm, Operation operation);
  // A communicator to be initialised; `forget` takes back its handle when that fails.
  void add_initialisation(const CommPointer& comm, Comm::IdSource id, std::function<void()> forget);
  // Outside of a group: launches what was added. Inside: success.
  int launch_if_closed() { return is_open() ? nccl::kSuccess : launch(); }
  void set_failed(int error) { error_ = error_ != 0 ? error_ : error; }

 private:
  struct Member {
    CommPointer comm;
    std::vector<Operation> operations;
  };
  struct Beginner {
    CommPointer comm;
    Comm::IdSource id;
    std::function<void()> forget;
  };
  int launch();
  int begin_all(std::vector<Beginner> beginners);

  int depth_ = 0;
  int error_ = 0;
  std::vector<Member> members_;
  std::vector<Beginner> beginners_;
};

// Counts a function of NCCL that works in any state; it may be planned to block.
inline Machine& plain_call(const char* function) {
  Machine& m = machine();
  m.census.count_call(function);
  if (m.faults.next(function).is(Effect::kBlock)) pause_for(kHangMicroseconds);
  return m;
}

// Begins every function of NCCL: counts it, applies what is planned and refuses without a device.
// The body gets the planned fault, for what happens later.
template <class Body>
int nccl_call(const char* function, const Body& body) {
  Machine& m = machine();
  m.census.count_call(function);
  const Fault fault = m.faults.next(function);
  if (fault.is(Effect::kBlock)) pause_for(kHangMicroseconds);
  int error = m.state() == 0 ? nccl::kSuccess : nccl::kUnhandledCudaError;
  if (error != 0) keep_last_error("Cuda failure " + std::to_string(m.state()));
  if (fault.is(Effect::kOutOfMemory)) error = nccl::kUnhandledCudaError;
  if (fault.is(Effect::kError)) {
    error = fault.value != 0 ? static_cast<int>(fault.value) : nccl::kInternalError;
  }
  if (error != 0 && m.state() == 0) {
    keep_last_error(std::string("planned fault of ") + function);
  }
  return error != 0 ? error : body(m, fault);
}

// The same for a function of one communicator, entered by one thread at a time, when what it did
// before is done.
template <class Body>
int comm_call(const char* function, nccl::CommHandle handle, const Body& body) {
  return nccl_call(function, [&](Machine& m, const Fault& fault) {
    const CommPointer comm = nccl_library().comms.find(handle);
    if (comm == nullptr) {
      m.census.misuse(std::string(function) + ": the communicator is " +
                      (nccl_library().comms.is_stale(handle) ? "aborted or destroyed" : "none"));
      return static_cast<int>(nccl::kInvalidArgument);
    }
    if (!comm->enter()) {
      m.census.misuse(std::string(function) + ": two threads are in one communicator");
      return static_cast<int>(nccl::kInvalidUsage);
    }
    int result = comm->error();
    if (result == nccl::kInProgress) {
      m.census.misuse(std::string(function) +
                      ": the communicator was used before the previous call had ended");
      result = nccl::kInvalidArgument;
    } else if (result == nccl::kSuccess) {
      result = body(m, comm, fault);
    }
    comm->leave();
    return result;
  });
}

}  // namespace fakegpu
