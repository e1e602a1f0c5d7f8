// From an ordered operation on devices to what does it: a staged collective, or one of NCCL's.
// Pure, but for handing over the events of the calls, which are then the operation's.
#pragma once

#include "core/operation_starter.h"
#include "ops/cuda/staged.h"
#include "ops/nccl/collective_task.h"

namespace kolo::internal {

// `whole`: an all-reduce goes in one piece.
void fill(cuda::StagedCall& call, OrderedOperation& ordered, bool whole);
void fill(nccl::Collective& collective, OrderedOperation& ordered);

// Of this rank's buffers; of one of its tensors.
[[nodiscard]] std::int32_t own_device(const OrderedOperation& ordered);

}  // namespace kolo::internal
