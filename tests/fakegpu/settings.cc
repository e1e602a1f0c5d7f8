#include "tests/fakegpu/settings.h"

#include <cstdlib>
#include <cstring>

namespace fakegpu {
namespace {

int number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text != nullptr && *text != '\0' ? std::atoi(text) : otherwise;
}

bool equals(const char* name, const char* value) {
  const char* text = getenv(name);
  return text != nullptr && std::strcmp(text, value) == 0;
}

}  // namespace

Settings Settings::from_environment() {
  Settings settings;
  settings.has_driver = !equals("FAKEGPU_DRIVER", "none");
  settings.devices = number("FAKEGPU_DEVICES", settings.devices);
  settings.device_offset = number("FAKEGPU_DEVICE_OFFSET", 0);
  settings.same_gpu = number("FAKEGPU_SAME_GPU", 0) != 0;
  settings.memory_bytes = static_cast<std::size_t>(number("FAKEGPU_MEMORY_MIB", 1024)) << 20;
  settings.runtime_version = number("FAKEGPU_CUDART_VERSION", settings.runtime_version);
  settings.nccl_version = number("FAKEGPU_NCCL_VERSION", settings.nccl_version);
  settings.dead_rank_is_error = equals("FAKEGPU_NCCL_DEATH", "error");
  settings.census_at_exit = number("FAKEGPU_CENSUS", 0) != 0;
  if (const char* faults = getenv("FAKEGPU_FAULT")) settings.faults = faults;
  return settings;
}

}  // namespace fakegpu
