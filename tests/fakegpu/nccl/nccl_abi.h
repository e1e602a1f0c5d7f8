// The functions of the fake NCCL, with C linkage: those that kolo calls, as its own table of them
// declares them, and those that programs around it call.
#pragma once

#include "ops/nccl/abi.h"

namespace kolo::internal::nccl {

extern "C" {
#define FAKEGPU_DECLARE(result, name, parameters) result name parameters;
KOLO_NCCL_FUNCTIONS(FAKEGPU_DECLARE, FAKEGPU_DECLARE)
#undef FAKEGPU_DECLARE

Error ncclCommInitRank(CommHandle* comm, int size, UniqueId id, int rank);
Error ncclCommUserRank(CommHandle comm, int* rank);
Error ncclCommCuDevice(CommHandle comm, int* device);
}

}  // namespace kolo::internal::nccl
