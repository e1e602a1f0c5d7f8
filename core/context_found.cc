// What kolo finds at run time of the libraries that it can do without.
#include <fstream>
#include <string>
#include <vector>

#include "base/json_text.h"
#include "core/context.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/runtime.h"
#include "ops/nccl/library.h"

namespace kolo::internal {
namespace {

std::string absent(const std::string& why) {
  return "{\"found\":false,\"why\":" + json_string(why) + "}";
}

std::string present(const std::string& path, const std::string& version) {
  return "{\"found\":true,\"path\":" + json_string(path) + ",\"version\":" + json_string(version);
}

// The kernel's part of the driver, as it says itself; null where none is seen.
std::string driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  return std::getline(file, line) ? json_string(line) : "null";
}

}  // namespace

std::string gpus_found() {
  Config config;
  std::vector<std::string> unknown;
  // What is wrong with other options is told at init.
  static_cast<void>(config.load_environment(unknown));
  const auto cuda = cuda::Runtime::look(config);
  const auto nccl = nccl::Library::load(config);
  return "\"cuda\":" +
         (cuda ? present(cuda->path, cuda::version_text(cuda->version)) + ",\"driver\":" +
                     driver() + ",\"kernels\":" + json_string(cuda::kernels_note()) + "}"
               : absent(cuda.status().text())) +
         ",\"nccl\":" +
         (nccl ? present((*nccl)->path(), nccl::version_text((*nccl)->version())) + "}"
               : absent(nccl.status().text()));
}

}  // namespace kolo::internal
