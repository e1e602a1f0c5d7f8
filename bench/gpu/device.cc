#include "bench/gpu/device.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "base/dynamic_library.h"
#include "bench/common/text.h"

namespace kolo::bench {
namespace {

[[noreturn]] void no_device(const internal::Status& status) {
  std::fprintf(stderr, "no GPU: %s\n", status.text().c_str());
  std::exit(kNoDeviceExit);
}

}  // namespace

Device::Device(int number) {
  std::vector<std::string> unknown;
  if (auto status = config_.load_environment(unknown); !status) no_device(status);
  auto runtime = cuda::Runtime::load(config_);
  if (!runtime) no_device(runtime.status());
  const auto count = (*runtime)->count_devices();
  if (!count) no_device(count.status());
  runtime_ = *std::move(runtime);
  count_ = *count;
  number_ = number % count_;
  must(runtime_->cudaSetDevice(number_), "cudaSetDevice");

  auto library = internal::DynamicLibrary::open({{runtime_->path()}});
  if (!library) die(library.status().text());
  elapsed_time_ = library->find<ElapsedTime>("cudaEventElapsedTime");
  if (elapsed_time_ == nullptr) die(runtime_->path() + " has no cudaEventElapsedTime");
  is_fake_ = library->find<long(void*)>("fakegpu_census") != nullptr;
  begin_ = timing_event();
  end_ = timing_event();
}

Device::Event Device::timing_event() const {
  cuda::EventHandle handle = nullptr;
  must(runtime_->cudaEventCreateWithFlags(&handle, 0), "cudaEventCreateWithFlags");
  return {*runtime_, handle};
}

void Device::must(cuda::Error error, const char* what) const {
  if (error != cuda::kSuccess) die(runtime_->status_of(error, what).text());
}

cuda::DeviceBuffer Device::allocate(std::size_t bytes) const {
  auto buffer = cuda::DeviceBuffer::create(*runtime_, bytes);
  if (!buffer) die(buffer.status().text());
  return *std::move(buffer);
}

cuda::Stream Device::stream() const {
  auto stream = cuda::Stream::create(*runtime_);
  if (!stream) die(stream.status().text());
  return *std::move(stream);
}

void Device::synchronize(cuda::StreamHandle stream) const {
  must(runtime_->cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

void Device::write(void* device, const std::vector<float>& values) const {
  must(runtime_->cudaMemcpyAsync(device, values.data(), values.size() * sizeof(float),
                                 cuda::kCopyHostToDevice, nullptr),
       "cudaMemcpyAsync");
  synchronize(nullptr);
}

std::vector<float> Device::read(const void* device, std::size_t count) const {
  std::vector<float> values(count);
  must(runtime_->cudaMemcpyAsync(values.data(), device, count * sizeof(float),
                                 cuda::kCopyDeviceToHost, nullptr),
       "cudaMemcpyAsync");
  synchronize(nullptr);
  return values;
}

double Device::time_us(cuda::StreamHandle stream, const std::function<void()>& queue) {
  must(runtime_->cudaEventRecord(begin_.get(), stream), "cudaEventRecord");
  queue();
  must(runtime_->cudaEventRecord(end_.get(), stream), "cudaEventRecord");
  must(runtime_->cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
  float ms = 0;
  must(elapsed_time_(&ms, begin_.get(), end_.get()), "cudaEventElapsedTime");
  return static_cast<double>(ms) * 1e3;
}

std::size_t count_wrong(const std::vector<float>& values, float expected) {
  std::size_t wrong = 0;
  for (const float value : values) wrong += value == expected ? 0 : 1;
  return wrong;
}

void print_origin(const Origin& origin, const Device& device, const std::string& peer_version) {
  std::printf("# machine %s; commit %s\n# CUDA runtime %s%s; device %d of %d\n",
              origin.machine.empty() ? "not said" : origin.machine.c_str(),
              origin.commit.empty() ? "not said" : origin.commit.c_str(),
              cuda::version_text(device.runtime().version()).c_str(),
              peer_version.empty() ? "" : (", NCCL " + peer_version).c_str(), device.number(),
              device.count());
  if (device.is_fake()) {
    std::printf("# FAKES: a CPU plays the device. These figures mean nothing.\n");
  }
}

void write_json(const Origin& origin, const Device& device, nlohmann::json row) {
  if (origin.json.empty()) return;
  row["machine"] = origin.machine;
  row["commit"] = origin.commit;
  row["cuda"] = cuda::version_text(device.runtime().version());
  row["fakes"] = device.is_fake();
  std::ofstream file(origin.json, std::ios::app);
  file << row.dump() << std::endl;
  if (!file) die("cannot write to " + origin.json);
}

}  // namespace kolo::bench
