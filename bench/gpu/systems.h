// System: one way to all-reduce tensors of device memory on a stream: kolo's, two ways, and a bare
// NCCL communicator's; and Job, the ranks that measure together.
//
// One thread of each rank; every rank makes the same calls in the same order. What fails ends the
// program.
#pragma once

#include <kolo/kolo.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "bench/gpu/device.h"

namespace kolo::bench {

// The context, which also brings the bare communicators together: over host memory.
class Job {
 public:
  Job();
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] kolo_context* context() const { return context_; }
  [[nodiscard]] int rank() const { return kolo_rank(context_); }
  [[nodiscard]] int size() const { return kolo_size(context_); }
  void barrier() const;
  // Rank 0's bytes become everyone's.
  void broadcast(void* bytes, std::size_t count) const;
  // The largest of the ranks' numbers: a job is as slow as its slowest rank.
  [[nodiscard]] double largest(double value) const;
  // How kolo's tensors have travelled so far: "nccl", or "staged" and kolo's own words why.
  [[nodiscard]] std::string road() const;

 private:
  void note(std::string_view line);

  mutable std::mutex mutex_;
  std::string why_staged_;
  kolo_context* context_ = nullptr;
};

void must(kolo_status status, const char* what);

struct Tensor {
  const float* input = nullptr;
  float* output = nullptr;
  std::size_t count = 0;
  std::string name;  // the same on all ranks, and of this tensor only
};

class System {
 public:
  virtual ~System() = default;
  [[nodiscard]] virtual const char* name() const = 0;
  // For all that follows; they outlive the next prepare().
  virtual void prepare(std::span<const Tensor> tensors) = 0;
  // Before one sum: what has to be waited for, and is not part of its launch.
  virtual void make_room() {}
  // One sum of the first prepared tensor: behind what is queued on `stream`, and before what comes.
  virtual void sum(cuda::StreamHandle stream) = 0;
  // Sums of all prepared tensors, complete when it returns.
  virtual void step(cuda::StreamHandle stream) = 0;
  // Everything is complete.
  virtual void finish(cuda::StreamHandle stream) = 0;
};

// A request, kolo_stream_wait(), and the request completed later on.
std::unique_ptr<System> make_kolo_waits(const Job& job, const Device& device);
// A null request with a stream: returns once launched, as NCCL's own calls do.
std::unique_ptr<System> make_kolo_call(const Job& job, const Device& device);
// ncclAllReduce on a communicator of the same ranks; a step is one group. Null, with the reason, if
// NCCL is not there or refuses them; then it does on all ranks.
std::unique_ptr<System> make_nccl(const Job& job, const Device& device, std::string* version,
                                  std::string* why);

// The same through kolo's pack and unpack kernels, with one call for all tensors; only step().
// Null, with the reason, where a rank has no NCCL or no kernels.
std::unique_ptr<System> make_packed(const Job& job, const Device& device, std::string* why);

}  // namespace kolo::bench
