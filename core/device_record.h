// DeviceRecord: what each rank says of its device before a process set uses it by NCCL; and
// whether, after all of them are known, it can. Pure: every rank comes to the same end.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/nccl/abi.h"

namespace kolo::internal {

// Goes from rank to rank as it lies in memory.
struct DeviceRecord {
  std::uint32_t can = 0;  // 1: NCCL is there, and wanted
  std::int32_t nccl_version = 0;
  std::uint64_t host = 0;       // the same for what NCCL takes for one host
  std::uint32_t may_share = 0;  // 1: NCCL was told that ranks may share a device
  std::uint32_t kernels = 0;    // 1: kolo's own run there
  char bus_id[32] = {};         // of the device on its host
  char why[248] = {};           // it cannot; ends with 0
  nccl::UniqueId id;            // by which the communicator meets: of the first rank
};
static_assert(sizeof(DeviceRecord) == 432);

// Empty: all of them can. Else why not, naming ranks of the job. `ranks`: by place.
[[nodiscard]] std::string why_not_by_nccl(std::span<const DeviceRecord> records,
                                          const std::vector<int>& ranks);

// Whether fused tensors travel through a buffer, which takes kernels on all of them.
[[nodiscard]] bool packs(std::span<const DeviceRecord> records);

}  // namespace kolo::internal
