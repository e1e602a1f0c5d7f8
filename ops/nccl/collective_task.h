// CollectiveTask: one ordered operation as NCCL does it: tensors of one kind, dtype and op, on one
// device of this rank, in one launch.
//
//   small fused tensors, where all ranks have kolo's kernels: one kernel packs them (with the
//   prescale), one call of NCCL's, one kernel unpacks them (with the postscale); packing.h says
//   which
//   else: one group of NCCL's calls, with that one; a sum is scaled by both factors at once, before
//   it is added up
//   what is not finite in results is counted by the unpacking kernel, or by one after the group
//
// Threads: as cuda::Task; the request is written before the task is posted. The tensors' memory is
// in use until the task has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/types.h"
#include "ops/cuda/launch_thread.h"
#include "ops/cuda/nonfinite_counts.h"
#include "ops/nccl/communicator.h"
#include "ops/nccl/packing.h"

namespace kolo::internal::nccl {

// A tensor of it, in device memory. Sizes in elements.
struct DeviceTensor {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // as the operation's contract in kolo.h says of `count`
  double prescale = 1.0;
  double postscale = 1.0;
  cuda::EventRef ready;  // behind the work that makes the input
  // Somebody wants to know how many values of the output are not finite: of so many elements of
  // that type, which need not be the operation's.
  bool is_counted = false;
  std::size_t output_count = 0;
  DataType output_dtype = DataType::kFloat32;
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

  // Before it is posted. `pack_bytes`: fused tensors of no more travel through the device's fusion
  // buffer, which all ranks do alike; none without a value.
  void prepare(Communicator& communicator, int device, std::optional<std::size_t> pack_bytes) {
    communicator_ = &communicator;
    device_ = device;
    pack_bytes_ = pack_bytes;
  }
  Collective& collective() { return collective_; }
  // Of an ended one: values of that tensor's output that are not finite, if they are to be counted;
  // -1: this device has no kernels that count.
  [[nodiscard]] std::int64_t nonfinite(std::size_t tensor) const { return nonfinite_.of(tensor); }

 protected:
  Result<cuda::EventRef> launch() override;
  Status verdict() override {
    nonfinite_.read();
    return communicator_->doomed();
  }
  // The device is current: outputs that come from somewhere now.
  virtual Status make_outputs() { return Status::ok(); }
  // What was launched comes to nothing.
  [[nodiscard]] bool is_doomed() const { return !communicator_->doomed().is_ok(); }

 private:
  bool plan_packing();
  void plan_counting(cuda::Device& device);
  [[nodiscard]] bool is_counted_by_unpacking() const;
  Status enqueue(cuda::Device& device);
  Status call_all(cuda::Device& device, bool packs);
  Status pack(cuda::Device& device);
  Status unpack(cuda::Device& device);
  [[nodiscard]] const PackingItem& scales_of_packed() const;
  std::size_t place_tensors();
  Error call_packed(cuda::StreamHandle stream);
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
  std::optional<std::size_t> pack_bytes_;
  Collective collective_;
  cuda::NonfiniteCounts nonfinite_;
  std::vector<PackingItem> items_;  // scratch
  std::vector<bool> packed_;        // by tensor
  std::byte* fusion_buffer_ = nullptr;
  std::size_t fused_bytes_ = 0;
  std::vector<cuda::PlacedTensor> inputs_;  // in the fusion buffer, as the next
  std::vector<cuda::PlacedTensor> outputs_;
  std::vector<ReduceOpNumber> made_ops_;  // scratch
  std::vector<ReduceOpNumber> ops_;       // by tensor
  ReduceOpNumber op_ = kSum;              // of the call at hand
};

}  // namespace kolo::internal::nccl
