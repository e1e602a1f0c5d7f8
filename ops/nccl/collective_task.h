// CollectiveTask: one ordered operation as NCCL does it: tensors of one kind, dtype and op, on one
// device of this rank, in one launch.
//
//   fused tensors, where all ranks have kolo's kernels: one kernel packs them (with the prescale),
//   one call of NCCL's, one kernel unpacks them (with the postscale)
//   else: one group of NCCL's calls; a sum is scaled by both factors at once, before it is added up
//
// Threads: as cuda::Task; the request is written before the task is posted. The tensors' memory is
// in use until the task has ended.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "ops/cuda/launch_thread.h"
#include "ops/nccl/communicator.h"

namespace kolo::internal::nccl {

// A tensor of it, in device memory. Sizes in elements.
struct DeviceTensor {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // as the operation's contract in kolo.h says of `count`
  double prescale = 1.0;
  double postscale = 1.0;
  cuda::EventRef ready;  // behind the work that makes the input
};

struct Collective {
  OpKind kind = OpKind::kAllreduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  // as all that follows, by place in the process set
  int size = 1;
  int place = 0;
  std::vector<DeviceTensor> tensors;
  // Blocks by place, where they differ: of a reduce-scatter or an all-gather; of an all-to-all,
  // what is sent. Empty: `count` each.
  std::vector<std::size_t> counts;
  std::vector<std::size_t> receive_counts;  // of an all-to-all
};

// Whether NCCL can do it, and in kolo's sense: everybody answers alike. Without reason: it can.
[[nodiscard]] const char* why_not(OpKind kind, DataType dtype, ReduceOp op, bool scaled);

class CollectiveTask : public cuda::Task {
 public:
  CollectiveTask(const Library& library, cuda::LaunchThread& thread)
      : library_(library), thread_(thread) {}

  // Before it is posted. `packs`: fused tensors travel through the device's fusion buffer, which
  // all ranks do alike.
  void prepare(Communicator& communicator, int device, bool packs) {
    communicator_ = &communicator;
    device_ = device;
    packs_ = packs;
  }
  Collective& collective() { return collective_; }

 protected:
  Result<cuda::EventRef> launch() override;
  Status verdict() override { return communicator_->doomed(); }
  // What was launched comes to nothing.
  [[nodiscard]] bool is_doomed() const { return !communicator_->doomed().is_ok(); }

 private:
  [[nodiscard]] bool is_packed() const;
  Status enqueue(cuda::Device& device);
  Status enqueue_packed(cuda::Device& device);
  std::size_t place_tensors();
  Error call(const DeviceTensor& tensor, cuda::StreamHandle stream);
  Error reduce_scatter(const DeviceTensor& tensor, cuda::StreamHandle stream);
  Error allgather(const DeviceTensor& tensor, cuda::StreamHandle stream);
  Error alltoall(const DeviceTensor& tensor, cuda::StreamHandle stream);
  [[nodiscard]] bool moves_bytes() const;
  [[nodiscard]] DataTypeNumber dtype() const;
  [[nodiscard]] std::size_t units(std::size_t elements) const;  // of dtype()
  Result<ReduceOpNumber> op_of(const DeviceTensor& tensor);

  const Library& library_;
  cuda::LaunchThread& thread_;
  Communicator* communicator_ = nullptr;
  int device_ = 0;
  bool packs_ = false;
  Collective collective_;
  std::vector<cuda::PlacedTensor> inputs_;  // in the fusion buffer, as the next
  std::vector<cuda::PlacedTensor> outputs_;
  std::vector<ReduceOpNumber> made_ops_;  // scratch
  std::vector<ReduceOpNumber> ops_;       // by tensor
  ReduceOpNumber op_ = kSum;              // of the call at hand
};

}  // namespace kolo::internal::nccl
