#include "ops/cuda/kernels.h"

#include <algorithm>
#include <utility>

#include "ops/cuda/kernels.cuh"

namespace kolo::internal::cuda {
namespace {

constexpr int kOldestDevice = 75;
// Of each multiprocessor: as many as its threads allow, so that all run at once.
constexpr std::uint64_t kBlocksPerMultiprocessor = 8;

Status unsupported(std::string text) { return {StatusCode::kUnsupported, std::move(text)}; }

bool is_short_float(DataType dtype) {
  return dtype == DataType::kFloat16 || dtype == DataType::kBfloat16 || dtype == DataType::kFloat32;
}

Status check(const Batch& batch) {
  const bool is_same = batch.tensor_type == batch.buffer_type;
  if (!is_same && !(is_short_float(batch.tensor_type) && is_short_float(batch.buffer_type))) {
    return invalid_argument("CUDA: no kernel changes " +
                            std::string(data_type_name(batch.tensor_type)) + " and " +
                            std::string(data_type_name(batch.buffer_type)) +
                            " into each other; only f16, bf16 and f32 can be");
  }
  if (batch.scale != 1.0 && !is_floating(batch.tensor_type)) {
    return invalid_argument("CUDA: a scale of " + std::string(data_type_name(batch.tensor_type)) +
                            ", which is no floating type");
  }
  return Status::ok();
}

// Adds tensors from `next` on, as many as there is room for.
void fill(std::span<const PlacedTensor> tensors, std::size_t& next, BatchArguments& arguments) {
  arguments.tensor_count = 0;
  arguments.tiles = 0;
  for (; next < tensors.size() && arguments.tensor_count < kBatchTensors; ++next) {
    const PlacedTensor& tensor = tensors[next];
    arguments.tensors[arguments.tensor_count++] = {tensor.memory, tensor.offset, tensor.count,
                                                   arguments.tiles};
    arguments.tiles += (tensor.count + kTileElements - 1) / kTileElements;
  }
}

Result<int> attribute(const Runtime& runtime, DeviceAttribute number, int device) {
  int value = 0;
  KOLO_RETURN_IF_ERROR(
      runtime.status_of(runtime.cudaDeviceGetAttribute(&value, number, device),
                        "cudaDeviceGetAttribute of device " + std::to_string(device)));
  return value;
}

}  // namespace

Result<std::unique_ptr<const Kernels>> Kernels::load(const Runtime& runtime, int device,
                                                     std::span<const std::byte> code) {
  if (code.empty()) return unsupported("CUDA: kolo has no kernels: " + kernels_note());
  if (runtime.cudaLibraryLoadData == nullptr || runtime.cudaLibraryGetKernel == nullptr ||
      runtime.cudaLibraryUnload == nullptr || runtime.cudaLaunchKernel == nullptr) {
    return unsupported("CUDA: " + runtime.path() + " (" + version_text(runtime.version()) +
                       ") cannot load kolo's kernels; use CUDA 12.8 or newer");
  }
  const auto major = attribute(runtime, kComputeCapabilityMajor, device);
  const auto minor = attribute(runtime, kComputeCapabilityMinor, device);
  const auto multiprocessors = attribute(runtime, kMultiprocessorCount, device);
  for (const auto* value : {&major, &minor, &multiprocessors}) {
    if (!*value) return value->status();
  }
  if (*major * 10 + *minor < kOldestDevice) {
    return unsupported("CUDA: device " + std::to_string(device) + " is of compute capability " +
                       std::to_string(*major) + "." + std::to_string(*minor) +
                       ", and kolo's kernels need 7.5 or newer");
  }
  LibraryHandle handle = nullptr;
  KOLO_RETURN_IF_ERROR(runtime.status_of(
      runtime.cudaLibraryLoadData(&handle, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
      "cudaLibraryLoadData of kolo's kernels (" + kernels_note() + ")"));
  std::unique_ptr<Kernels> kernels(new Kernels(runtime, Library(runtime, handle)));
  const std::pair<const char*, KernelHandle*> names[] = {
      {"kolo_pack", &kernels->pack_},
      {"kolo_unpack", &kernels->unpack_},
      {"kolo_unpack_counted", &kernels->unpack_counted_},
      {"kolo_count", &kernels->count_}};
  for (const auto& [name, kernel] : names) {
    const auto found = kernels->find(name);
    if (!found) return found.status();
    *kernel = *found;
  }
  kernels->most_blocks_ =
      kBlocksPerMultiprocessor * static_cast<std::uint64_t>(std::max(*multiprocessors, 1));
  return std::unique_ptr<const Kernels>(std::move(kernels));
}

Result<KernelHandle> Kernels::find(const char* name) const {
  KernelHandle kernel = nullptr;
  KOLO_RETURN_IF_ERROR(
      runtime_.status_of(runtime_.cudaLibraryGetKernel(&kernel, library_.get(), name),
                         std::string("cudaLibraryGetKernel of ") + name));
  return kernel;
}

Status Kernels::pack(StreamHandle stream, const Batch& batch) const {
  return launch(pack_, "kolo_pack", stream, batch);
}

Status Kernels::unpack(StreamHandle stream, const Batch& batch) const {
  if (batch.counters == nullptr) return launch(unpack_, "kolo_unpack", stream, batch);
  return launch(unpack_counted_, "kolo_unpack_counted", stream, batch);
}

Status Kernels::count(StreamHandle stream, const Batch& batch) const {
  if (!is_floating(batch.tensor_type) || batch.counters == nullptr) return Status::ok();
  return launch(count_, "kolo_count", stream, batch);
}

Status Kernels::launch(KernelHandle kernel, const char* name, StreamHandle stream,
                       const Batch& batch) const {
  KOLO_RETURN_IF_ERROR(check(batch));
  BatchArguments arguments;
  arguments.buffer = static_cast<std::byte*>(batch.buffer);
  arguments.scale = batch.scale;
  arguments.tensor_type = static_cast<std::int32_t>(batch.tensor_type);
  arguments.buffer_type = static_cast<std::int32_t>(batch.buffer_type);
  for (std::size_t next = 0; next < batch.tensors.size();) {
    arguments.counters = batch.counters == nullptr ? nullptr : batch.counters + next;
    fill(batch.tensors, next, arguments);
    if (arguments.tiles == 0) continue;
    Dim3 grid;
    grid.x = static_cast<unsigned>(std::min(arguments.tiles, most_blocks_));
    Dim3 block;
    block.x = kThreads;
    void* parameters[] = {&arguments};
    KOLO_RETURN_IF_ERROR(runtime_.status_of(
        runtime_.cudaLaunchKernel(kernel, grid, block, parameters, 0, stream), name));
  }
  return Status::ok();
}

}  // namespace kolo::internal::cuda
