#include "bench/common/text.h"
#include "bench/gpu/systems.h"
#include "ops/nccl/library.h"

namespace kolo::bench {
namespace {

namespace nccl = internal::nccl;

class Nccl final : public System {
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

 private:
  void queue(const Tensor& tensor, cuda::StreamHandle stream) {
    must(library_->ncclAllReduce(tensor.input, tensor.output, tensor.count, nccl::kFloat32,
                                 nccl::kSum, comm_, stream),
         "ncclAllReduce");
  }
  void must(nccl::Error error, const char* what) {
    if (error != nccl::kSuccess) die(library_->status_of(error, what, comm_).text());
  }

  const Device& device_;
  std::unique_ptr<const nccl::Library> library_;
  nccl::CommHandle comm_;
  std::span<const Tensor> tensors_;
};

}  // namespace

std::unique_ptr<System> make_nccl(const Job& job, const Device& device, std::string* version,
                                  std::string* why) {
  auto library = nccl::Library::load(device.config());
  if (job.largest(library ? 0 : 1) > 0) {
    *why = library ? "another rank has no NCCL" : library.status().text();
    return nullptr;
  }
  *version = nccl::version_text((*library)->version());
  nccl::UniqueId id;
  nccl::Error error = nccl::kSuccess;
  if (job.rank() == 0) error = (*library)->ncclGetUniqueId(&id);
  if (job.largest(error) > 0) {
    *why = (*library)->status_of(error, "ncclGetUniqueId on rank 0").text();
    return nullptr;
  }
  job.broadcast(&id, sizeof id);
  nccl::CommConfig config;
  config.blocking = 1;
  nccl::CommHandle comm = nullptr;
  error = (*library)->ncclCommInitRankConfig(&comm, job.size(), id, job.rank(), &config);
  if (job.largest(error) > 0) {
    *why = error == nccl::kSuccess ? "another rank was refused"
                                   : (*library)->status_of(error, "ncclCommInitRankConfig").text();
    if (comm != nullptr) (*library)->ncclCommAbort(comm);
    return nullptr;
  }
  return std::make_unique<Nccl>(device, *std::move(library), comm);
}

}  // namespace kolo::bench
