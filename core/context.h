// Context: one rank's membership of a job, and the composition root that builds and owns all of
// it: road, coordinator, engine, executor, the background thread. Several may live in a process.
//
// Threads: any function from any thread, except the destructor (no call may be running).
// Blocking: create, shutdown, run, wait and wait_all block; nothing else does.
// Buffers: belong to kolo from submit to completion, and are never touched after that.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "base/status.h"
#include "core/request.h"

namespace kolo::internal {

// The file through which MPI could be used as a road; empty if there is none.
[[nodiscard]] std::string mpi_module_found();

// What is found of CUDA and NCCL, as the members "cuda" and "nccl" of a JSON object. Loads NCCL.
[[nodiscard]] std::string gpus_found();

class Context {
 public:
  // Meets the other ranks of the job as `config` describes it; alone, a job of one.
  // Errors: INVALID_ARGUMENT, TIMED_OUT (names the missing ranks), PEER_LOST, RESOURCE.
  static Result<std::unique_ptr<Context>> create(const Config& config, Logger::Sink log_sink);
  virtual ~Context() = default;  // aborts what is left, as if shutdown had been called

  // Refuses new work, ends pending work as ABORTED (here and on ranks that wait for this one),
  // lets started operations finish, takes leave of the peers. Bounded by shutdown_timeout_ms.
  // Returns what broke the context before, if anything did.
  // A second call returns NOT_INITIALIZED. From a callback: WOULD_DEADLOCK.
  virtual Status shutdown() = 0;
  // Ends every pending and later operation of the context on all ranks as ABORTED.
  virtual Status abort(const std::string& reason) = 0;
  // OK, or the error that broke the context.
  [[nodiscard]] virtual Status health() const = 0;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual int local_rank() const = 0;
  [[nodiscard]] virtual int local_size() const = 0;
  // JSON object: ranks, hosts, road, options in force.
  [[nodiscard]] virtual std::string info_json() const = 0;

  // Memory of a CUDA device for tensors; UNSUPPORTED, RESOURCE. free() takes it back.
  virtual Result<void*> allocate_on(std::int32_t device, std::size_t bytes) = 0;
  // Memory for tensors, shared with the ranks of this host where that is possible.
  // RESOURCE; INVALID_ARGUMENT for what was not allocated here, or was freed.
  virtual Result<void*> allocate(std::size_t bytes) = 0;
  virtual Status free(void* memory) = 0;

  // Submits and returns at once. Errors here concern the call itself (INVALID_ARGUMENT,
  // DUPLICATE_NAME, RESOURCE, or the context's own broken state); no request exists then.
  // Inside a group of this thread: joins the group; the id names the member.
  virtual Result<RequestId> submit(Submission submission) = 0;
  // Submits and waits; the operation's status. With buffers on a device and a stream, it waits only
  // until the operation is launched, and makes the stream wait for it. Inside a group of this
  // thread: joins the group and returns OK.
  virtual Status run(Submission submission) = 0;
  // For a call that was refused before it came here: tells the other ranks, or spoils this
  // thread's group. Returns `why`.
  virtual Status refuse(const Submission& submission, Status why) = 0;

  // This rank has no more data for submission.process_set; complete when no rank of it has. Only
  // callback and number of the submission count besides. DUPLICATE_NAME: it has joined already.
  virtual Result<RequestId> join(const Submission& submission) = 0;
  virtual Status run_join(const Submission& submission) = 0;  // and waits
  // Ascending. INVALID_ARGUMENT: no such set.
  virtual Result<std::vector<int>> ranks_of(std::int32_t process_set) const = 0;

  // Opens a group for this thread; its members are one negotiated unit. Empty name: sequence
  // number. Members hold one status. Nested groups are INVALID_ARGUMENT.
  virtual Status group_begin(std::string name) = 0;
  // Closes and submits it. An error (also one of a member's submit) means nothing was submitted.
  // An empty group completes at once.
  virtual Result<RequestId> group_end() = 0;
  // group_end and wait. From a callback: WOULD_DEADLOCK, and the group stays open.
  virtual Status group_run() = 0;

  // A persistent request: checked and named, not started. start() submits many under one lock;
  // on error none is started. Until it is complete again it must not be started again
  // (DUPLICATE_NAME).
  virtual Result<RequestId> prepare(Submission submission) = 0;
  virtual Status start(std::span<const RequestId> requests) = 0;

  // Waits up to `limit` (kNever: until done). Complete: its status, and `done` is true; the
  // request is then released, unless persistent (inactive) or with an output of its own.
  // kInProgress if the limit passed. From a callback: WOULD_DEADLOCK unless already complete.
  // Unknown id: INVALID_ARGUMENT.
  virtual Status wait(RequestId request, Nanos limit, bool& done) = 0;
  // Waits until all of the request's work on devices is launched, and makes `stream`, a
  // cudaStream_t, wait for that; the request stays. The operation's error, if it has ended with
  // one; kInProgress if the limit passed; INVALID_ARGUMENT, WOULD_DEADLOCK.
  virtual Status stream_wait(RequestId request, void* stream, Nanos limit) = 0;
  // One bounded attempt to make progress; then as wait with no time.
  virtual Status test(RequestId request, bool& done) = 0;
  // All of them within one limit; the first error in order of `requests`. Those complete are
  // released; kInProgress when some are not (each `done[i]` says which). Null ids are skipped.
  virtual Status wait_all(std::span<const RequestId> requests, Nanos limit,
                          std::span<bool> done) = 0;
  // Of a complete request whose output the library allocated, which is the request's until its
  // release: [count] elements, and how many each rank of the process set gave. INVALID_ARGUMENT;
  // the operation's own error.
  struct Output {
    void* memory = nullptr;
    std::size_t count = 0;
    const std::size_t* counts = nullptr;
  };
  virtual Result<Output> output(RequestId request) = 0;
  // In a child of fork(): gives up its copies of the connections, see Poller::close_in_child().
  virtual void close_in_child() const noexcept = 0;
  // Releases a request: a persistent one for good; a running one completes unobserved.
  virtual Status release(RequestId request) = 0;
};

}  // namespace kolo::internal
