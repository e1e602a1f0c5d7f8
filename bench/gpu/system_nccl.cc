#include "bench/common/text.h"
#include "bench/gpu/systems.h"
#include "ops/cuda/kernels.h"
#include "ops/nccl/library.h"

namespace kolo::bench {
namespace {

namespace nccl = internal::nccl;

class Nccl : public System {
 public:
  Nccl(const Device& device, std::unique_ptr<const nccl::Library> library, nccl::CommHandle comm)
      : device_(device), library_(std::move(library)), comm_(comm) {}
  ~Nccl() override { library_->ncclCommDestroy(comm_); }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  [[nodiscard]] const char* name() const override { return "nccl"; }
  void prepare(std::span<const Tensor> tensors) override { tensors_ = tensors; }
  void sum(cuda::StreamHandle stream) override { queue(tensors_[0], stream); }

  void step(cuda::StreamHandle stream) override {
    must(library_->ncclGroupStart(), "ncclGroupStart");
    for (const Tensor& tensor : tensors_) queue(tensor, stream);
    must(library_->ncclGroupEnd(), "ncclGroupEnd");
    device_.synchronize(stream);
  }

  void finish(cuda::StreamHandle stream) override { device_.synchronize(stream); }

 protected:
  void queue(const void* input, void* output, std::size_t count, cuda::StreamHandle stream) {
    must(library_->ncclAllReduce(input, output, count, nccl::kFloat32, nccl::kSum, comm_, stream),
         "ncclAllReduce");
  }
  void queue(const Tensor& tensor, cuda::StreamHandle stream) {
    queue(tensor.input, tensor.output, tensor.count, stream);
  }
  void must(nccl::Error error, const char* what) {
    if (error != nccl::kSuccess) die(library_->status_of(error, what, comm_).text());
  }

  const Device& device_;
  std::unique_ptr<const nccl::Library> library_;
  nccl::CommHandle comm_;
  std::span<const Tensor> tensors_;
};

// The same tensors through a buffer: one kernel of kolo's packs them, one call, one unpacks them.
class Packed final : public Nccl {
 public:
  Packed(const Device& device, std::unique_ptr<const nccl::Library> library, nccl::CommHandle comm,
         std::unique_ptr<const cuda::Kernels> kernels)
      : Nccl(device, std::move(library), comm), kernels_(std::move(kernels)) {}

  [[nodiscard]] const char* name() const override { return "packed"; }
  void prepare(std::span<const Tensor> tensors) override {
    Nccl::prepare(tensors);
    inputs_.clear();
    outputs_.clear();
    std::size_t offset = 0;
    for (const Tensor& tensor : tensors) {
      // Only read from.
      inputs_.push_back({const_cast<float*>(tensor.input), offset, tensor.count});  // NOLINT
      outputs_.push_back({tensor.output, offset, tensor.count});
      offset += (tensor.count * sizeof(float) + 15) / 16 * 16;
    }
    if (buffer_.bytes() < offset) buffer_ = device_.allocate(offset);
    count_ = offset / sizeof(float);
  }

  void step(cuda::StreamHandle stream) override {
    cuda::Batch batch;
    batch.buffer = buffer_.get();
    batch.tensors = inputs_;
    must(kernels_->pack(stream, batch));
    queue(buffer_.get(), buffer_.get(), count_, stream);
    batch.tensors = outputs_;
    must(kernels_->unpack(stream, batch));
    device_.synchronize(stream);
  }

 private:
  using Nccl::must;
  static void must(const internal::Status& status) {
    if (!status) die(status.text());
  }

  std::unique_ptr<const cuda::Kernels> kernels_;
  std::vector<cuda::PlacedTensor> inputs_;
  std::vector<cuda::PlacedTensor> outputs_;
  cuda::DeviceBuffer buffer_;
  std::size_t count_ = 0;
};

// A communicator of all ranks; without one, the same on all.
nccl::CommHandle meet(const Job& job, const nccl::Library& library, std::string* why) {
  nccl::UniqueId id;
  nccl::Error error = nccl::kSuccess;
  if (job.rank() == 0) error = library.ncclGetUniqueId(&id);
  if (job.largest(error) > 0) {
    *why = library.status_of(error, "ncclGetUniqueId on rank 0").text();
    return nullptr;
  }
  job.broadcast(&id, sizeof id);
  nccl::CommConfig config;
  config.blocking = 1;
  nccl::CommHandle comm = nullptr;
  error = library.ncclCommInitRankConfig(&comm, job.size(), id, job.rank(), &config);
  if (job.largest(error) > 0) {
    *why = error == nccl::kSuccess ? "another rank was refused"
                                   : library.status_of(error, "ncclCommInitRankConfig").text();
    if (comm != nullptr) library.ncclCommAbort(comm);
    return nullptr;
  }
  return comm;
}

}  // namespace

std::unique_ptr<System> make_nccl(const Job& job, const Device& device, std::string* version,
                                  std::string* why) {
  auto library = nccl::Library::load(device.config());
  if (job.largest(library ? 0 : 1) > 0) {
    *why = library ? "another rank has no NCCL" : library.status().text();
    return nullptr;
  }
  *version = nccl::version_text((*library)->version());
  nccl::CommHandle comm = meet(job, **library, why);
  if (comm == nullptr) return nullptr;
  return std::make_unique<Nccl>(device, *std::move(library), comm);
}

std::unique_ptr<System> make_packed(const Job& job, const Device& device, std::string* why) {
  auto library = nccl::Library::load(device.config());
  auto kernels = cuda::Kernels::load(device.runtime(), device.number());
  if (job.largest(library && kernels ? 0 : 1) > 0) {
    *why = kernels ? "a rank has no NCCL, or no kernels" : kernels.status().text();
    return nullptr;
  }
  nccl::CommHandle comm = meet(job, **library, why);
  if (comm == nullptr) return nullptr;
  return std::make_unique<Packed>(device, *std::move(library), comm, *std::move(kernels));
}

}  // namespace kolo::bench
