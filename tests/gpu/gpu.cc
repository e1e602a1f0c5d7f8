#include "tests/gpu/gpu.h"

#include <string>

#include "ops/cuda/kernels.h"

namespace gpu_test {
namespace {

struct Found {
  std::unique_ptr<const cuda::Runtime> runtime;
  int devices = 0;
  std::string why;
};

Found look() {
  Found found;
  kolo::internal::Config config;
  std::vector<std::string> unknown;
  if (auto status = config.load_environment(unknown); !status) return {nullptr, 0, status.text()};
  auto loaded = cuda::Runtime::load(config);
  if (!loaded) return {nullptr, 0, loaded.status().text()};
  const auto devices = (*loaded)->count_devices();
  if (!devices) return {nullptr, 0, devices.status().text()};
  found.runtime = *std::move(loaded);
  found.devices = *devices;
  return found;
}

const Found& found() {
  static const Found* const once = new Found(look());
  return *once;
}

}  // namespace

const cuda::Runtime* runtime(std::string* why) {
  if (why != nullptr) *why = found().why;
  return found().runtime.get();
}

int device_count() { return found().devices; }

bool has_kernels() {
  static const bool once =
      runtime() != nullptr && cuda::Kernels::load(*runtime(), 0).status().is_ok();
  return once;
}

}  // namespace gpu_test
