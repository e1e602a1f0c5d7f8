// The registration point: one row per kernel, by the name under which the program looks it up.
#include "tests/fakegpu/kernels.h"

#include <cstdint>
#include <cstring>

#include "tests/fakegpu/kolo_kernels.h"

namespace fakegpu {
namespace {

template <class Type>
Type argument(void** arguments, int index) {
  Type value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

// The fake's own, for its tests: fakegpu_fill(std::uint32_t* to, std::uint32_t value, size_t
// count).
std::function<void(Access&)> bind_fill(const LaunchShape&, void** arguments) {
  auto* to = argument<std::uint32_t*>(arguments, 0);
  const auto value = argument<std::uint32_t>(arguments, 1);
  const auto count = argument<std::size_t>(arguments, 2);
  return [to, value, count](Access& access) {
    std::uint32_t* at = access.open_array(to, count);
    for (std::size_t i = 0; at != nullptr && i < count; ++i) at[i] = value;
  };
}

constexpr Kernel kKernels[] = {{"fakegpu_fill", bind_fill},
                               {"kolo_pack", bind_kolo_pack},
                               {"kolo_unpack", bind_kolo_unpack},
                               {"kolo_unpack_counted", bind_kolo_unpack_counted},
                               {"kolo_count", bind_kolo_count}};

}  // namespace

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel& kernel : kKernels) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

}  // namespace fakegpu
