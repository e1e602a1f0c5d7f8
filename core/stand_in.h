// What a rank that has joined brings to the others' operations: neutral elements, and somewhere for
// the results that it does not want. Pure but for the memory.
#pragma once

#include "core/gpus.h"
#include "core/request_state.h"

namespace kolo::internal {

// For a request with set, unit and counts, of which this rank has joined: gives it its buffers.
// Throws std::bad_alloc.
void give_neutral_buffers(RequestState& request);

// The output of a request whose output the library allocates, now that its size is known; of one on
// a device only the size. Throws std::bad_alloc.
void give_output(RequestState& request);
// That output, on the launch thread with the device current. RESOURCE.
Status give_device_output(Gpus& gpus, RequestState& request);

}  // namespace kolo::internal
